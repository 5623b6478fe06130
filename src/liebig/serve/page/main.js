// The search page: what is asked lives in the address, so that it can be kept, shared and gone back to.

import { compare, info } from "./api.js";
import { count, find, make } from "./dom.js";
import { listen } from "./keys.js";
import { open, wentBack } from "./reader.js";
import { NAMES, show } from "./results.js";

const PAUSE = 130; // milliseconds of quiet before a search
const STEP = 10; // results shown at first, and more each time
const MOST = 50; // results shown at the most, where the server gives as many
const ORDER = ["reranked", "hybrid", "dense", "bm25"];

const state = { query: "", first: "hybrid", second: "bm25", filters: {}, k: STEP, server: null };
let underWay = null, timer = null, asked = null;

function readAddress() {
  const given = new URLSearchParams(location.search);
  const { systems, system } = state.server.retriever;
  const known = (name, otherwise) => (systems.includes(given.get(name)) ? given.get(name) : otherwise);
  state.query = given.get("q") ?? "";
  state.first = known("a", system);
  const beside = ["bm25", "dense"].find((name) => name !== state.first && systems.includes(name)) ?? "";
  state.second = given.get("b") === "" ? "" : known("b", given.has("a") ? "" : beside);
  state.filters = Object.fromEntries(given.getAll("f").map((pair) => [pair.split(":")[0], pair.slice(pair.indexOf(":") + 1)]));
}

function writeAddress() {
  const address = new URLSearchParams({ q: state.query, a: state.first, b: state.second });
  for (const [name, value] of Object.entries(state.filters)) address.append("f", `${name}:${value}`);
  history.replaceState(null, "", state.query ? `?${address}` : location.pathname);
  asked = location.search;
  document.title = state.query ? `${state.query} – Liebig` : "Liebig";
}

function choices() {
  const { systems } = state.server.retriever;
  const there = ORDER.filter((name) => systems.includes(name));
  choice("first", there, state.first, (name) => {
    if (state.second === name) state.second = "";
    state.first = name;
  });
  choice("second", [...there.filter((name) => name !== state.first), ""], state.second, (name) => { state.second = name; });
  find("second").hidden = there.length < 2;
}

function choice(id, names, chosen, set) {
  const field = find(id), legend = field.querySelector("legend");
  const was = field.contains(document.activeElement);
  field.replaceChildren(legend, ...names.map((name) => {
    const input = make("input", { type: "radio", name: id, value: name, onchange: () => { set(name); choices(); search(); } });
    input.checked = name === chosen;
    return make("label", {}, input, make("span", {}, NAMES[name] ?? "Alone"));
  }));
  if (was) field.querySelector("input:checked")?.focus();
}

function filters() {
  const list = find("filters"), chosen = Object.entries(state.filters);
  list.hidden = !chosen.length;
  list.replaceChildren(...chosen.map(([name, value]) => make("li", {},
    make("button", { type: "button", "aria-label": `Remove the filter ${name}: ${value}`, onclick: () => {
      delete state.filters[name];
      search();
      find("query").focus();
    } }, `${name}: ${value}`))));
}

const actions = {
  get k() { return state.k; },
  get most() { return Math.min(MOST, state.server.max_k); },
  open: (passage) => open(passage).catch(failed),
  more: async (system) => {
    const shown = state.k;
    state.k = Math.min(state.k + STEP, actions.most);
    await search({ keep: true });
    document.querySelectorAll(`[aria-labelledby=list-${system}] .title`)[shown]?.focus();
  },
  filter: (name, value) => {
    state.filters[name] = value;
    search();
    find("query").focus();
  },
  failed,
};

async function search({ keep = false } = {}) {
  clearTimeout(timer);
  if (!keep) state.k = Math.min(STEP, actions.most);
  underWay?.abort();
  writeAddress();
  filters();
  if (!state.query.trim()) return welcome();
  const mine = (underWay = new AbortController());
  document.body.classList.add("busy");
  try {
    const systems = [state.first, state.second].filter(Boolean);
    const question = { query: state.query, systems, k: state.k, filters: state.filters };
    const answer = await compare(question, mine.signal);
    find("problem").hidden = true;
    show(answer, actions);
    find("status").textContent = said(answer);
  } catch (error) {
    if (error.name !== "AbortError") failed(error);
  } finally {
    if (mine === underWay) document.body.classList.remove("busy");
  }
}

function said(answer) {
  const lists = answer.lists.map((list) => `${NAMES[list.system]} ${list.results.length ? `shows ${list.results.length}` : "found nothing"}`);
  const unknown = answer.words.filter((word) => word.term && word.passages === 0).map((word) => `“${word.text}”`);
  const missing = unknown.length ? ` · in no passage: ${unknown.join(", ")}` : "";
  return `${lists.join(" · ")} · ${answer.took_ms < 10 ? answer.took_ms.toFixed(1) : Math.round(answer.took_ms)} ms${missing}`;
}

function failed(error) {
  find("problem").textContent = error.message;
  find("problem").hidden = false;
}

function welcome() {
  document.body.classList.remove("busy");
  find("status").textContent = "";
  find("problem").hidden = true;
  find("sides").hidden = true;
  find("results").className = "one";
  find("results").replaceChildren(make("div", { class: "welcome" },
    make("p", { class: "lead" }, "Type a question or a few words; results appear as you type."),
    make("p", {}, "BM25 matches words, dense matches meaning, hybrid combines both. Show two side by side to see where they differ."),
    make("p", { class: "keyboard" }, "Move through the results with the arrow keys; Enter opens the document with the passage marked.")));
}

async function start() {
  state.server = await info();
  const { folder, passages, documents } = state.server.retriever;
  const from = documents ? ` from ${count(documents, "document", "documents")}` : "";
  find("about").textContent = `${folder} · ${count(passages, "passage", "passages")}${from}`;
  readAddress();
  state.query = find("query").value || state.query; // what was typed while the server was asked counts
  choices();
  find("query").value = state.query;
  find("query").addEventListener("input", () => {
    state.query = find("query").value;
    clearTimeout(timer);
    timer = setTimeout(search, PAUSE);
  });
  find("ask").addEventListener("submit", (event) => { event.preventDefault(); search(); });
  addEventListener("popstate", () => {
    if (wentBack()) return writeAddress();
    if (location.search === asked) return;
    readAddress();
    choices();
    find("query").value = state.query;
    search();
  });
  listen({ choose: (number) => find("first").querySelectorAll("input")[number]?.click() });
  await search();
}

start().catch(failed);
