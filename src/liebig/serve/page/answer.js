// An answer in sentences, if the server has a language model: asked for by a button, shown as it comes, sources below.

import { stream } from "./api.js";
import { find, make } from "./dom.js";

let underWay = null;

export function offerAnswer(model, question, actions) {
  underWay?.abort();
  const box = find("answer");
  box.hidden = !model || !question;
  if (box.hidden) return;
  const text = make("p", { class: "said", "aria-live": "polite" }), below = make("div", { class: "sources" });
  const button = make("button", { type: "button", onclick: () => {
    button.remove();
    text.textContent = "One moment …";
    answer(question, text, below, actions);
  } }, `Let ${model} answer from these documents`);
  box.replaceChildren(button, text, below);
}

async function answer(question, text, below, actions) {
  const mine = (underWay = new AbortController());
  let said = "";
  try {
    for await (const event of stream("/ask", question, mine.signal)) {
      if (event.error) throw new Error(event.error);
      if (event.delta) text.textContent = said += event.delta;
      if (event.sources) finish(said, event, text, below, actions);
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    text.textContent = said;
    actions.failed(error);
  }
}

// Citations become buttons that open their passage; one that does not exist has been replaced by the server.
function finish(said, event, text, below, actions) {
  const known = new Map(event.sources.map((source) => [`[${source.number}]`, source]));
  const open = (source, name) => make("button", { type: "button", onclick: () => actions.open(source.id) }, name);
  text.replaceChildren(...(said || "The documents do not answer this.").split(/(\[\d+\])/).map((part) =>
    (known.has(part) ? open(known.get(part), part) : part)));
  const place = (source) => [source.path, source.place].filter(Boolean).join(", ");
  below.replaceChildren(...[
    event.problem ? make("p", { class: "problem" }, event.problem) : null,
    event.sources.length ? make("ul", {}, event.sources.map((source) => make("li", {},
      open(source, `[${source.number}] ${source.title || source.doc}`), ` ${place(source)}`))) : null,
    make("p", { class: "caution" }, "Written by a language model from the passages cited: check them."),
  ].filter(Boolean));
}
