// The lists: one or two columns of results, their ranks in each other, and why a list is empty.

import { breakable, find, make, marked } from "./dom.js";
import { because } from "./why.js";

export const NAMES = { bm25: "BM25", dense: "Dense", hybrid: "Hybrid", reranked: "Reranked" };
const SHOWN_FIELDS = 2;

export function show(answer, actions) {
  const [left, right] = answer.lists;
  const results = find("results");
  results.className = right ? "two" : "one";
  const stood = standing();
  results.replaceChildren(...answer.lists.map((list, side) => column(answer, list, [right, left][side], actions)));
  sides(answer.lists);
  stood?.();
}

// Whoever stood on a result stands on it again in the new lists, where it is in them, and on the first otherwise.
function standing() {
  const hit = document.activeElement?.closest?.(".hit");
  if (!hit) return null;
  const side = [...document.querySelectorAll(".column")].indexOf(hit.closest(".column")), id = hit.dataset.id;
  return () => {
    const columns = document.querySelectorAll(".column"), hits = [...(columns[side] ?? columns[0]).querySelectorAll(".hit")];
    (hits.find((one) => one.dataset.id === id) ?? hits[0])?.querySelector(".title").focus();
  };
}

function column(answer, list, other, actions) {
  const id = `list-${list.system}`;
  const rows = byDocument(list.results).flatMap((group) =>
    group.map((result, place) => hit(answer, result, list.system, other, actions, place > 0)));
  const more = list.results.length >= actions.k && actions.k < actions.most
    ? make("button", { class: "more", type: "button", onclick: () => actions.more(list.system) }, "Show more")
    : null;
  const body = rows.length ? [make("ol", {}, rows), more] : [nothing(answer, list)];
  return make("section", { class: "column", "aria-labelledby": id }, make("h2", { id }, NAMES[list.system]), body);
}

// Passages of one document stand together, below the title of its best passage.
function byDocument(results) {
  const groups = new Map();
  for (const result of results) {
    const key = result.doc || result.id;
    groups.set(key, [...(groups.get(key) ?? []), result]);
  }
  return [...groups.values()];
}

function hit(answer, result, system, other, actions, again) {
  const name = again ? [`Also in ${result.title || result.doc}`] : result.title ? marked(result.title_marks, breakable) : breakable(result.id);
  const title = make("button", { class: "title", type: "button", onclick: () => actions.open(result.id) }, name);
  const why = make("button", { class: "why", type: "button", "aria-expanded": "false" }, "Why?");
  const node = make("li", { class: again ? "hit again" : "hit", "data-id": result.id },
    make("span", { class: "rank" }, String(result.rank)),
    make("div", {}, title, make("p", { class: "text" }, marked(result.snippet)),
      make("div", { class: "facts" }, rankElsewhere(result, other, answer.depth),
        result.doc && !again ? make("span", { class: "id" }, breakable(result.doc)) : null, why, fields(result, actions))));
  why.addEventListener("click", () => toggle(node, why, answer.query, result.id, system, actions));
  for (const name of ["focusin", "mouseenter"]) node.addEventListener(name, () => twins(node, true));
  for (const name of ["focusout", "mouseleave"]) node.addEventListener(name, () => twins(node, false));
  return node;
}

function rankElsewhere(result, other, depth) {
  if (!other) return make("span", {}, `score ${Number(result.score.toPrecision(4))}`);
  const name = NAMES[other.system];
  if (result.other === null) {
    const said = other.found < depth ? `not found by ${name}` : `not in ${name}’s first ${depth}`;
    return make("span", { class: "only" }, said);
  }
  const by = result.other - result.rank;
  if (by === 0) return make("span", {}, `${ordinal(result.other)} in ${name} too`);
  const moved = make("span", { class: by > 0 ? "up" : "down", title: `${Math.abs(by)} ${by > 0 ? "higher" : "lower"} than in ${name}` },
    `${by > 0 ? "▲" : "▼"} ${Math.abs(by)}`);
  return make("span", {}, moved, ` · ${ordinal(result.other)} in ${name}`);
}

function ordinal(number) {
  const last = number % 10, teen = Math.floor((number % 100) / 10) === 1;
  return `${number}${teen ? "th" : ["th", "st", "nd", "rd"][last] ?? "th"}`;
}

function fields(result, actions) {
  const short = Object.entries(result.metadata).filter(([, value]) => value && value.length <= 24).slice(0, SHOWN_FIELDS);
  return short.map(([name, value]) =>
    make("button", { type: "button", "aria-label": `Only ${name}: ${value}`, onclick: () => actions.filter(name, value) },
      `${name}: ${value}`));
}

async function toggle(node, button, query, id, system, actions) {
  const there = node.querySelector(".because");
  button.setAttribute("aria-expanded", String(!there));
  if (there) return there.remove();
  const box = make("div", { class: "because" }, "One moment …");
  node.append(box);
  try {
    box.replaceChildren(...(await because(query, id, system)));
  } catch (error) {
    box.remove();
    button.setAttribute("aria-expanded", "false");
    actions.failed(error);
  }
}

function twins(node, on) {
  for (const other of document.querySelectorAll(".hit")) {
    if (other !== node && other.dataset.id === node.dataset.id) other.classList.toggle("twin", on);
  }
}

function nothing(answer, list) {
  const missing = answer.words.filter((word) => word.term && word.passages === 0).map((word) => word.text);
  const ignored = answer.words.filter((word) => !word.term).map((word) => word.text);
  const notes = [
    missing.length && !list.nothing.includes(missing[0]) ? `In no passage: ${missing.join(", ")}.` : null,
    ignored.length ? `Ignored stop words: ${ignored.join(", ")}.` : null,
  ].filter(Boolean);
  return make("div", { class: "nothing" }, make("strong", {}, "Nothing found"), make("p", {}, list.nothing),
    notes.length ? make("ul", {}, notes.map((note) => make("li", {}, note))) : null);
}

// On a narrow screen one list is shown at a time.
function sides(lists) {
  const group = find("sides"), results = find("results");
  group.hidden = lists.length < 2;
  const choose = (side) => {
    results.dataset.side = side;
    [...group.children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === side)));
  };
  group.replaceChildren(...lists.map((list, side) =>
    make("button", { type: "button", onclick: () => choose(side) }, NAMES[list.system])));
  choose(Math.min(Number(results.dataset.side ?? 0), lists.length - 1));
}
