// What the collection holds, and which files could not be read, with the reasons.

import { ask } from "./api.js";
import { find, make } from "./dom.js";

const fact = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));

export async function showCollection(server) {
  const { folder, documents, passages, language } = server.retriever;
  const { summary, files, more } = await ask("/files");
  const number = (value) => value.toLocaleString("en");
  find("collection-facts").replaceChildren(...[
    fact("Folder", folder),
    documents ? fact("Documents", number(documents)) : null,
    fact("Passages", number(passages)),
    language ? fact("Language", language) : null,
    summary ? fact("Files", `${number(summary.seen)} seen, ${number(summary.read)} read, ${number(summary.seen - summary.read)} not read`) : null,
  ].filter(Boolean));
  const kinds = (summary?.not_read ?? []).map((row) => make("tr", {}, make("td", {}, number(row.files)), make("td", {}, row.suffix), make("td", {}, row.reason)));
  find("collection-unread").replaceChildren(...[
    kinds.length ? make("table", {}, make("thead", {}, make("tr", {}, ["Files", "Kind", "Reason"].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, kinds)) : make("p", {}, summary ? "None: every file was read." : "Not known; build the folder again to know."),
    files.length ? make("ul", {}, files.map((line) => make("li", {}, line)), more ? make("li", {}, `and ${number(more)} more, in skipped.txt`) : null) : null,
  ].filter(Boolean));
  find("collection").showModal();
}
