// What the collection holds, and which files could not be read, with the reasons.

import { ask } from "./api.js";
import { count, find, make } from "./dom.js";

const fact = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));

export async function showCollection(server) {
  const { folder, documents, passages, language } = server.retriever;
  const files = await ask("/files");
  const counts = files.counts;
  find("collection-facts").replaceChildren(...[
    fact("Folder", folder),
    documents ? fact("Documents", documents.toLocaleString("en")) : null,
    fact("Passages", passages.toLocaleString("en")),
    language ? fact("Language", language) : null,
    counts ? fact("Files", `${counts.seen.toLocaleString("en")} seen, ${counts.read.toLocaleString("en")} read, ` +
      `${counts.skipped.toLocaleString("en")} failed, ${counts.ignored.toLocaleString("en")} of other kinds left out`) : null,
  ].filter(Boolean));
  const left = files.skipped - files.reasons.length;
  find("collection-unread").replaceChildren(files.reasons.length
    ? make("ul", {}, files.reasons.map((line) => make("li", {}, line)), left ? make("li", {}, `and ${count(left, "more", "more")}, in skipped.txt`) : null)
    : make("p", {}, "None: every file that can be read was read."));
  find("collection").showModal();
}
