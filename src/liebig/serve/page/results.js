// The results: one list of documents, or two systems beside each other with ranks in each other; why a list is empty.

import { breakable, count, dateOf, find, make, marked, placeOf, SHOWN } from "./dom.js";
import { because } from "./why.js";

export const NAMES = { bm25: "BM25", dense: "Dense", hybrid: "Hybrid", reranked: "Reranked" };
export const EVERYDAY = { bm25: "Words", dense: "Meaning", hybrid: "Both", reranked: "Both, slower and more careful" };
const SHOWN_FIELDS = 2;
const NOTHING_FITS = "Nothing here seems to fit the question."; // as the server says it
const PASSAGES = 3; // of a document shown at first

// One list; returns how many documents it has.
export function show(answer, actions) {
  const list = answer;
  const groups = byDocument(list.results), id = `list-${list.system}`, stood = standing();
  const rows = groups.slice(0, actions.shown).flatMap((group, place) => documentRows(answer, group, place + 1, list.system, actions));
  const full = list.results.length >= actions.k && actions.k < actions.most;
  const more = groups.length > actions.shown || full
    ? make("button", { class: "more", type: "button", onclick: () => actions.more(list.system) }, "Show more")
    : null;
  find("sides").hidden = true;
  find("results").className = "one";
  find("results").replaceChildren(make("section", { class: "column", "aria-labelledby": id },
    make("h2", { id, class: "unseen" }, "Results"), rows.length ? [make("ol", {}, rows), more] : nothing(answer, list, actions)));
  notes(answer, rows.length > 0, actions);
  stood?.();
  return groups.length;
}

// The best passages of a document in the order they were found; the others wait behind a button.
function documentRows(answer, group, number, system, actions) {
  const rows = group.map((result, place) => hit(answer, result, system, null, actions, place > 0, place ? "" : String(number)));
  const rest = rows.slice(PASSAGES);
  if (!rest.length) return rows;
  for (const row of rest) row.hidden = true;
  const button = make("button", { type: "button", "aria-expanded": "false", onclick: () => {
    for (const row of rest) row.hidden = false;
    button.parentNode.remove();
    rest[0].querySelector(".title").focus();
  } }, `${count(rest.length, "more", "more")} in this document`);
  return [...rows.slice(0, PASSAGES), make("li", { class: "rest" }, button), ...rest];
}

// What the server has to say of the question, and what may have been meant.
function notes(answer, some, actions) {
  const lines = some ? answer.notes.map((note) => make("p", {}, note)) : []; // an empty list says them itself
  const meant = answer.suggestion
    ? make("p", {}, "Did you mean ", make("button", { type: "button", onclick: () => actions.replace(answer.suggestion) }, answer.suggestion), "?")
    : null;
  find("notes").replaceChildren(...[meant, ...lines].filter(Boolean));
  find("notes").hidden = !meant && !lines.length;
}

export function showComparison(answer, actions) {
  const [left, right] = answer.lists;
  const results = find("results"), stood = standing();
  results.className = "two";
  find("notes").hidden = true;
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
    group.map((result, place) => hit(answer, result, list.system, other, actions, place > 0, String(result.rank))));
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

function hit(answer, result, system, other, actions, again, number) {
  const name = again ? ["Also in this document"] : result.title ? marked(result.title_marks, breakable) : breakable(result.id);
  const title = make("button", { class: "title", type: "button", onclick: () => actions.open(result.id) }, name);
  const why = make("button", { class: "why", type: "button", "aria-expanded": "false" }, "Why?");
  const node = make("li", { class: again ? "hit again" : "hit", "data-id": result.id },
    make("span", { class: "rank" }, number),
    make("div", {}, title, make("p", { class: "text" }, marked(result.snippet)),
      make("div", { class: "facts" }, other ? rankElsewhere(result, other, answer.depth) : null,
        source(result, again), why, again ? null : fields(result, actions))));
  why.addEventListener("click", () => toggle(node, why, answer.query, result.id, system, actions));
  for (const name of ["focusin", "mouseenter"]) node.addEventListener(name, () => twins(node, true));
  for (const name of ["focusout", "mouseleave"]) node.addEventListener(name, () => twins(node, false));
  return node;
}

// Where a passage is: its file, which opens at the place where there is one, page or line, date, author and copies.
function source(result, again) {
  const { path, author, also_in: copies } = result.metadata;
  const when = dateOf(result.metadata);
  const place = placeOf(result.metadata);
  const name = again ? place || (result.original ? "open the file here" : "") : [path || result.doc, place].filter(Boolean).join(", ");
  const file = !name ? null : result.original
    ? make("a", { class: "id", href: result.original, target: "_blank", rel: "noopener", title: "Open the original file" }, breakable(name))
    : make("span", { class: "id" }, breakable(name));
  if (again) return file;
  const date = when ? make("time", { datetime: when }, when.slice(0, 10)) : null;
  return [file, date, author ? make("span", {}, author) : null, copies ? make("span", { class: "id" }, `also in ${copies}`) : null];
}

function rankElsewhere(result, other, depth) {
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
  const short = Object.entries(result.metadata)
    .filter(([name, value]) => !(name in SHOWN) && value && value.length <= 24).slice(0, SHOWN_FIELDS);
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

function nothing(answer, list, actions) {
  const missing = answer.words.filter((word) => word.term && word.passages === 0).map((word) => `“${word.text}”`);
  const ignored = answer.words.filter((word) => !word.term).map((word) => word.text);
  const said = answer.notes.length ? answer.notes.join(" ") : list.nothing;
  const lines = [
    missing.length && !said.includes(missing[0]) ? `In no passage: ${missing.join(", ")}.` : null,
    ignored.length ? `Too common to search by: ${ignored.join(", ")}.` : null,
  ].filter(Boolean);
  const anyway = actions && answer.notes.includes(NOTHING_FITS)
    ? make("button", { class: "more", type: "button", onclick: actions.anyway }, "Show the nearest anyway")
    : null;
  return make("div", { class: "nothing" }, make("strong", {}, "Nothing found"), make("p", {}, said),
    lines.length ? make("ul", {}, lines.map((line) => make("li", {}, line))) : null, anyway);
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
