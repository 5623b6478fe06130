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

export const marked = (pieces, cut = (text) => text) =>
  pieces.map((p) => (p.marked ? make("mark", {}, cut(p.text)) : cut(p.text)));

// Long names may break behind a dot, a slash or an underscore.
export const breakable = (text) => text.split(/(?<=[._/])(?=\w)/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));

export const count = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

// Metadata that is shown in a way of its own, not as a field.
export const SHOWN = Object.fromEntries(
  ["path", "folder", "type", "size", "modified", "date", "author", "page", "slide", "line", "also_in", "language"].map((name) => [name, true]));

// When a document is from: its own date, or when its file was changed.
export const dateOf = ({ date, modified }) => (/^\d{4}-\d\d/.test(date) ? date : modified);

export const placeOf = ({ page, slide, line }) => (page ? `page ${page}` : slide ? `slide ${slide}` : line ? `line ${line}` : "");
