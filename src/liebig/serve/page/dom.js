// Elements without markup in strings, so that nothing a document says can become markup.

export const find = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child != null));
  return node;
}

export const marked = (pieces) => pieces.map((p) => (p.marked ? make("mark", {}, p.text) : p.text));

export const count = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
