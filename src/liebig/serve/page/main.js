// The search page: what is asked lives in the address, so that it can be kept, shared and gone back to.

import { offerAnswer } from "./answer.js";
import { compare, info, search as searchOne } from "./api.js";
import { showCollection } from "./collection.js";
import { count, dateOf, find, make } from "./dom.js";
import { FIELDS, PERIODS, showFacets } from "./facets.js";
import { listen } from "./keys.js";
import { open, wentBack } from "./reader.js";
import { EVERYDAY, NAMES, show, showComparison } from "./results.js";

const PAUSE = 130; // milliseconds of quiet before a search
const ORDER = ["bm25", "dense", "hybrid", "reranked"];
const SORTS = { best: "Best match", newest: "Newest" };
// One list asks for passages and shows documents; a comparison shows passages. `most` is the deepest either goes.
const ONE = { step: 30, most: 150 }, TWO = { step: 10, most: 50 };
const DOCUMENTS = 10; // shown at first, and more each time

const state = { query: "", first: "hybrid", second: "", sort: "best", days: "", filters: {}, k: 0, shown: DOCUMENTS, server: null };
let underWay = null, timer = null, asked = null;

const depth = () => (state.second ? TWO : ONE);

function readAddress() {
  const given = new URLSearchParams(location.search);
  const { systems, system } = state.server.retriever;
  const known = (name, otherwise) => (systems.includes(given.get(name)) ? given.get(name) : otherwise);
  state.query = given.get("q") ?? "";
  state.first = known("a", system);
  state.second = known("b", "");
  state.sort = given.get("sort") in SORTS ? given.get("sort") : "best";
  state.days = given.get("days") in PERIODS ? given.get("days") : "";
  state.filters = {};
  for (const pair of given.getAll("f")) (state.filters[pair.split(":")[0]] ??= []).push(pair.slice(pair.indexOf(":") + 1));
  return given.get("read");
}

function address(more = {}) {
  const parts = new URLSearchParams({ q: state.query, a: state.first, ...(state.second && { b: state.second }),
    ...(state.sort !== "best" && { sort: state.sort }), ...(state.days && { days: state.days }), ...more });
  for (const [name, values] of Object.entries(state.filters)) for (const value of values) parts.append("f", `${name}:${value}`);
  return `?${parts}`;
}

function writeAddress() {
  history.replaceState(null, "", state.query ? address() : location.pathname);
  asked = location.search;
  document.title = state.query ? `${state.query} – Liebig` : "Liebig";
}

function choices() {
  const { systems } = state.server.retriever;
  const there = ORDER.filter((name) => systems.includes(name));
  const names = state.second ? NAMES : EVERYDAY;
  choice("first", there, names, state.first, (name) => {
    if (state.second === name) state.second = state.first;
    state.first = name;
  });
  choice("second", there.filter((name) => name !== state.first), names, state.second, (name) => { state.second = name; });
  choice("sort", Object.keys(SORTS), SORTS, state.sort, (name) => { state.sort = name; });
  find("second").hidden = !state.second;
  find("sort").hidden = Boolean(state.second);
  find("compare").hidden = there.length < 2;
  find("compare").setAttribute("aria-checked", String(Boolean(state.second)));
}

function choice(id, values, names, chosen, set) {
  const field = find(id), legend = field.querySelector("legend");
  const was = field.contains(document.activeElement);
  field.replaceChildren(legend, ...values.map((value) => {
    const input = make("input", { type: "radio", name: id, value, onchange: () => { set(value); choices(); search(); } });
    input.checked = value === chosen;
    return make("label", {}, input, make("span", {}, names[value]));
  }));
  if (was) field.querySelector("input:checked")?.focus();
}

function toggleComparison() {
  const { systems } = state.server.retriever;
  state.second = state.second ? "" : ["bm25", "dense", "hybrid"].find((name) => name !== state.first && systems.includes(name));
  choices();
  search();
}

function filters() {
  const list = find("filters");
  const chosen = Object.entries(state.filters).flatMap(([name, values]) => values.map((value) => [name, value]));
  list.hidden = !chosen.length;
  list.replaceChildren(...chosen.map(([name, value]) => make("li", {},
    make("button", { type: "button", "aria-label": `Remove the filter ${name}: ${value}`, onclick: () => {
      state.filters[name] = state.filters[name].filter((one) => one !== value);
      if (!state.filters[name].length) delete state.filters[name];
      search();
      find("query").focus();
    } }, `${FIELDS[name] ?? name}: ${value}`))));
}

const actions = {
  get k() { return state.k; },
  get most() { return Math.min(depth().most, state.server.max_k); },
  get shown() { return state.shown; },
  open: (passage) => open(passage, address({ read: passage }), state.query).catch(failed),
  more: async (system) => {
    const before = document.querySelectorAll(`[aria-labelledby=list-${system}] .title`).length;
    state.shown += DOCUMENTS;
    state.k = Math.min(state.k + depth().step, actions.most);
    await search({ keep: true });
    document.querySelectorAll(`[aria-labelledby=list-${system}] .title`)[before]?.focus();
  },
  filter: (name, value) => {
    state.filters[name] = [value];
    search();
    find("query").focus();
  },
  replace: (query) => {
    state.query = find("query").value = query;
    search();
    find("query").focus();
  },
  anyway: () => search({ floor: false }),
  failed,
};

async function search({ keep = false, floor = true } = {}) {
  clearTimeout(timer);
  if (!keep) {
    state.k = Math.min(depth().step, actions.most);
    state.shown = DOCUMENTS;
  }
  underWay?.abort();
  writeAddress();
  filters();
  if (!state.query.trim()) return welcome();
  const mine = (underWay = new AbortController());
  document.body.classList.add("busy");
  try {
    const question = { query: state.query, k: state.k, filters: { ...state.filters, ...period(state.days) } };
    if (state.second) {
      offerAnswer(null);
      const answer = await compare({ ...question, systems: [state.first, state.second] }, mine.signal);
      showFacets(null, false, state, search);
      showComparison(answer, actions);
      find("status").textContent = answer.lists.map((list) =>
        `${NAMES[list.system]} ${list.results.length ? `shows ${list.results.length}` : "found nothing"}`).join(" · ") + spent(answer) + missing(answer);
    } else {
      const answer = await searchOne({ ...question, floor, system: state.first, sort: state.sort, facets: Object.keys(FIELDS) }, mine.signal);
      const documents = show(answer, actions), { query, filters } = question;
      find("status").textContent = documents ? `${count(documents, "document", "documents")}${spent(answer)}${missing(answer)}` : "";
      const filtered = state.days || Object.keys(state.filters).length;
      showFacets(documents || filtered ? answer.facets : null, answer.results.some((result) => dateOf(result.metadata)), state, search);
      offerAnswer(documents ? state.server.llm : null, { query, filters, system: state.first }, actions);
    }
    find("problem").hidden = true;
  } catch (error) {
    if (error.name !== "AbortError") failed(error);
  } finally {
    if (mine === underWay) document.body.classList.remove("busy");
  }
}

const spent = (answer) => ` · ${answer.took_ms < 10 ? answer.took_ms.toFixed(1) : Math.round(answer.took_ms)} ms`;

function missing(answer) {
  const unknown = answer.words.filter((word) => word.term && word.passages === 0).map((word) => `“${word.text}”`);
  return unknown.length ? ` · in no passage: ${unknown.join(", ")}` : "";
}

// Documents of the last days, as a filter.
function period(days) {
  return days ? { date: { gte: new Date(Date.now() - days * 864e5).toISOString().slice(0, 10) } } : {};
}

function failed(error) {
  find("problem").textContent = error.message;
  find("problem").hidden = false;
}

function welcome() {
  document.body.classList.remove("busy");
  find("status").textContent = "";
  for (const id of ["problem", "sides", "notes", "facets", "answer"]) find(id).hidden = true;
  find("results").className = "one";
  find("results").replaceChildren(make("div", { class: "welcome" },
    make("p", { class: "lead" }, "Type a question or a few words; results appear as you type."),
    make("p", {}, "Words finds what you typed, meaning finds what you meant in other words, and both together are usually best."),
    make("p", { class: "keyboard" }, "Move through the results with the arrow keys; Enter opens the document with the passage marked.")));
}

async function start() {
  state.server = await info();
  const { folder, passages, documents } = state.server.retriever;
  const from = documents ? ` from ${count(documents, "document", "documents")}` : "";
  find("about").textContent = `${folder} · ${count(passages, "passage", "passages")}${from}`;
  const reading = readAddress();
  state.query = find("query").value || state.query; // what was typed while the server was asked counts
  choices();
  find("query").value = state.query;
  find("facets").open = matchMedia("(min-width: 62rem)").matches;
  find("query").addEventListener("input", () => {
    state.query = find("query").value;
    clearTimeout(timer);
    timer = setTimeout(search, PAUSE);
  });
  find("ask").addEventListener("submit", (event) => { event.preventDefault(); search(); });
  find("compare").addEventListener("click", toggleComparison);
  find("show-collection").addEventListener("click", () => showCollection(state.server).catch(failed));
  addEventListener("popstate", () => {
    if (wentBack()) return writeAddress();
    if (history.state?.reader) return open(history.state.reader, null, state.query).catch(failed);
    if (location.search === asked) return;
    readAddress();
    choices();
    find("query").value = state.query;
    search();
  });
  listen({ choose: (number) => find("first").querySelectorAll("input")[number]?.click() });
  await search();
  if (reading) await actions.open(reading);
}

start().catch(failed);
