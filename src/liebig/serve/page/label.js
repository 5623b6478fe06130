// Judging passages with single keys. Every judgement is sent at once; what cannot be saved is said and taken back.

import { ask, Refused } from "./api.js";
import { breakable, count, find, make } from "./dom.js";

const SAID = { 1: "relevant", 0: "not relevant" };
let shown = null; // the question, as the server gave it
let place = 0; // of the passage that keys judge
let done = []; // what can be undone, each step the passages it judged: question, passage, what it was before

const items = () => [...find("passages").children];

function problem(error) {
  if (error && !(error instanceof Refused)) throw error;
  find("problem").hidden = !error;
  find("problem").textContent = error?.message ?? "";
}

function progress(told) {
  const where = shown?.number == null ? "" : `Question ${shown.number + 1} of ${told.questions} · `;
  find("progress").textContent =
    `${where}${count(told.judged, "question", "questions")} judged, ${told.answered} with a relevant passage · ` +
    `${count(told.judgements, "judgement", "judgements")}`;
}

function mark(item, relevance) {
  item.dataset.relevance = relevance ?? "";
  item.querySelector(".said").textContent = SAID[relevance] ?? "";
  for (const button of item.querySelectorAll("button"))
    button.setAttribute("aria-pressed", String(String(relevance) === button.dataset.grade));
}

function stand(next) {
  const all = items();
  if (!all.length) return;
  place = Math.max(0, Math.min(next, all.length - 1));
  all[place].focus();
}

async function judge(number, relevance, remember = true) {
  const passage = shown?.passages[number];
  if (!passage) return;
  const before = passage.relevance;
  passage.relevance = relevance;
  mark(items()[number], relevance);
  try {
    const answer = await ask("/label/judgement", { question: shown.question, passage: passage.id, relevance });
    if (remember) done.push([{ question: shown.number, number, before }]);
    finish();
    progress(answer.progress);
    problem(null);
  } catch (error) {
    passage.relevance = before;
    mark(items()[number], before);
    problem(error);
  }
}

async function undo() {
  const last = done.pop();
  if (!last) return;
  if (last[0].question !== shown.number) await open(last[0].question);
  for (const step of last) await judge(step.number, step.before, false);
  stand(last[0].number);
}

// What is left is judged as not relevant at once: nothing answers the question, or nothing else does.
async function nothingElse() {
  const left = (shown?.passages ?? []).map((one, number) => ({ one, number })).filter(({ one }) => one.relevance == null);
  if (!left.length) return next();
  try {
    const answer = await ask("/label/rest", { question: shown.question, passages: left.map(({ one }) => one.id) });
    done.push(left.map(({ number }) => ({ question: shown.number, number, before: null })));
    for (const { one, number } of left) {
      one.relevance = 0;
      mark(items()[number], 0);
    }
    finish();
    progress(answer.progress);
    problem(null);
    return next();
  } catch (error) {
    problem(error);
  }
}

function finish() {
  const passages = shown?.passages ?? [];
  find("finish").hidden = !passages.length;
  find("nothing").textContent = passages.some((one) => one.relevance > 0) ? "Nothing else answers this" : "Nothing answers this";
}

function passage(one, number) {
  const button = (grade, text) =>
    make("button", { type: "button", "data-grade": grade, onclick: () => judge(number, grade).then(() => stand(number)) }, text);
  const item = make("li", { tabindex: "-1", "data-id": one.id },
    make("h3", {}, one.title || one.doc || one.id),
    one.file ? make("p", { class: "file" }, one.original
      ? make("a", { href: one.original, target: "_blank", rel: "noopener" }, breakable(one.file)) : breakable(one.file)) : null,
    make("p", { class: "text" }, one.text),
    make("p", {}, button(1, "Relevant"), button(0, "Not relevant"), make("span", { class: "said" })));
  item.addEventListener("focusin", () => { place = number; });
  mark(item, one.relevance);
  return item;
}

async function open(number) {
  try {
    shown = await ask(number == null ? "/label/question" : `/label/question?number=${number}`);
  } catch (error) {
    return problem(error);
  }
  problem(null);
  find("about").textContent = shown.file;
  find("question").textContent = shown.number == null ? "Add a question to begin" : shown.question;
  find("passages").replaceChildren(...(shown.passages ?? []).map(passage));
  finish();
  progress(shown.progress);
  const first = (shown.passages ?? []).findIndex((one) => one.relevance == null);
  if (shown.number == null) find("another").focus();
  else if (items().length) stand(Math.max(0, first));
  else find("question").focus();
}

function next() {
  const total = shown?.progress.questions ?? 0;
  if (shown?.number != null && shown.number + 1 < total) return open(shown.number + 1);
  find("progress").textContent += " · This was the last question.";
}

const KEYS = {
  y: () => judge(place, 1).then(() => stand(place + 1)),
  n: () => judge(place, 0).then(() => stand(place + 1)),
  x: nothingElse,
  s: () => stand(place + 1),
  ArrowDown: () => stand(place + 1),
  ArrowUp: () => stand(place - 1),
  Enter: next,
  p: () => shown?.number > 0 && open(shown.number - 1),
  u: undo,
};

let busy = Promise.resolve(); // keys that are pressed quickly are carried out one after the other
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, dialog") || (event.key === "Enter" && event.target.closest("button, a"));
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  busy = busy.then(KEYS[event.key]);
});

find("nothing").addEventListener("click", () => { busy = busy.then(nothingElse); });

find("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const { number } = await ask("/label/ask", { question: find("another").value });
    find("another").value = "";
    await open(number);
  } catch (error) {
    problem(error);
  }
});

open();
