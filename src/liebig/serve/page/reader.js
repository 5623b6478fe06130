// A whole document in a dialog, with the passage that was found marked and in view.

import { read } from "./api.js";
import { dateOf, find, make, placeOf, SHOWN } from "./dom.js";

// `address` is the document's own; null where the browser has gone to it already.
export async function open(passage, address, query) {
  const shown = await read(passage, query);
  const dialog = find("reader");
  find("reader-title").textContent = shown.title || shown.id;
  const { path, author } = shown.metadata;
  const others = Object.entries(shown.metadata).filter(([name]) => !(name in SHOWN)).map(([name, value]) => `${name}: ${value}`);
  const facts = [path || shown.id, placeOf(shown.metadata), dateOf(shown.metadata)?.slice(0, 10), author, ...others];
  find("reader-about").textContent = facts.filter((fact) => fact && fact.length < 200).join(" · ");
  find("reader-original").hidden = !shown.original;
  if (shown.original) find("reader-original").firstElementChild.href = shown.original;
  find("reader-text").replaceChildren(...shown.sections.flatMap((section, number) => sectionNodes(shown, section, number)));
  dialog.showModal();
  if (address !== null) history.pushState({ reader: passage }, "", address);
  entered = true;
  title = document.title;
  document.title = `${shown.title || shown.id} – Liebig`;
  const mark = find("reader-text").querySelector("mark");
  find("reader-text").scrollTop = 0;
  mark?.scrollIntoView({ block: "center" });
  find("reader-text").focus({ preventScroll: true });
}

// Going back closes the document, and closing it goes back. The browser takes a moment for that, in which one may
// already have asked for something else: so closing says whether the way back is the document's own.
let entered = false, leaving = false, title = "";

find("reader").addEventListener("close", () => {
  document.title = title;
  if (!entered) return;
  entered = false;
  leaving = true;
  history.back();
});

export function wentBack() {
  const own = leaving;
  entered = leaving = false;
  find("reader").close();
  return own;
}

function sectionNodes(shown, section, number) {
  const marks = shown.marks.filter((mark) => mark.section === number);
  const paragraphs = section.paragraphs.map((text, place) =>
    paragraph(text, marks.find((mark) => mark.paragraph === place)));
  return [section.heading ? make("h3", {}, section.heading) : null, ...paragraphs].filter(Boolean);
}

function paragraph(text, mark) {
  if (!mark) return make("p", {}, text);
  return make("p", {}, text.slice(0, mark.start), make("mark", {}, text.slice(mark.start, mark.end)), text.slice(mark.end));
}
