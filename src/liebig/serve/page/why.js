// Why a passage matched: its words, shaded by what the score loses when each is left out.

import { explain } from "./api.js";
import { make } from "./dom.js";

const TITLES = { dense: "By meaning (dense)", bm25: "By words (BM25)" };
const LEAST = 0.12; // of the strongest word: less is not shown
const PARTS = { dense: ["dense"], bm25: ["bm25"], hybrid: ["dense", "bm25"], reranked: ["dense", "bm25"] };

export async function because(query, id, system) {
  const parts = await Promise.all(PARTS[system].map((part) => explain({ query, id, system: part })));
  return parts.flatMap(shown);
}

function shown({ system, text, words }) {
  const most = Math.max(...words.map((word) => Math.abs(word.contribution)), 1e-9);
  const shaded = make("p", { class: "shaded" });
  let at = 0;
  for (const word of words) {
    shaded.append(text.slice(at, word.start), shade(text.slice(word.start, word.end), word.contribution / most));
    at = word.end;
  }
  shaded.append(text.slice(at));
  return [make("h3", {}, TITLES[system]), shaded, sum(text, words, system)];
}

function shade(text, share) {
  if (Math.abs(share) < LEAST) return text;
  if (share < 0) return make("span", { class: "low" }, text);
  const node = make("span", {}, text);
  node.style.backgroundColor = `color-mix(in srgb, var(--why) ${Math.round(share * 55)}%, transparent)`;
  return node;
}

function sum(text, words, system) {
  const named = words.map((word) => ({ text: text.slice(word.start, word.end), value: word.contribution }));
  const high = named.filter((word) => word.value > 0).sort((a, b) => b.value - a.value).slice(0, 4);
  const low = named.filter((word) => word.value < 0).sort((a, b) => a.value - b.value).slice(0, 2);
  if (!high.length && !low.length) {
    const said = system === "bm25" ? "Its text shares no word with the question." : "No single word makes a difference.";
    return make("p", { class: "sum" }, said);
  }
  const list = (all) => all.flatMap((word, i) => [i ? ", " : "", make("b", {}, word.text), ` ${signed(word.value)}`]);
  return make("p", { class: "sum" },
    high.length ? ["Raises the score: ", list(high), ". "] : null,
    low.length ? ["Lowers it (underlined): ", list(low), "."] : null);
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toPrecision(2)}`;
