// Filters beside the list: the values of a field with the number of results that have each, and a period of time.

import { find, make } from "./dom.js";

export const FIELDS = { folder: "Folder", type: "Type", language: "Language" };
export const PERIODS = { 7: "Past week", 31: "Past month", 366: "Past year" };
const MOST = 8; // values of a field shown at first

// What the server counted and what is chosen; a value that is chosen stays, even where nothing has it any more.
export function showFacets(facets, dated, state, changed) {
  const box = find("facets"), stood = standing(box);
  const groups = Object.entries(FIELDS).map(([field, name]) => group(field, name, facets?.[field] ?? {}, state, changed));
  const all = [...groups, dated || state.days ? period(state, changed) : null].filter(Boolean);
  box.hidden = !all.length;
  box.lastElementChild.replaceChildren(...all);
  stood?.();
}

function standing(box) {
  const at = box.contains(document.activeElement) ? document.activeElement.name + document.activeElement.value : null;
  return at && (() => [...box.querySelectorAll("input")].find((input) => input.name + input.value === at)?.focus());
}

function group(field, name, counts, state, changed) {
  const chosen = state.filters[field] ?? [];
  const values = [...new Set([...chosen, ...Object.keys(counts)])];
  if (values.length < 2 && !chosen.length) return null; // there is nothing to choose from
  const rows = values.map((value) => row(field, value, counts[value] ?? 0, chosen, state, changed));
  const more = rows.length > MOST ? make("details", {}, make("summary", {}, `${rows.length - MOST} more`), rows.splice(MOST)) : null;
  return make("fieldset", { class: "facet" }, make("legend", {}, name), rows, more);
}

function row(field, value, number, chosen, state, changed) {
  const input = make("input", { type: "checkbox", name: field, value, onchange: () => {
    const now = input.checked ? [...chosen, value] : chosen.filter((one) => one !== value);
    if (now.length) state.filters[field] = now;
    else delete state.filters[field];
    changed();
  } });
  input.checked = chosen.includes(value);
  return make("label", {}, input, make("span", {}, value === "." ? "(top)" : value), make("span", { class: "count" }, number.toLocaleString("en")));
}

function period(state, changed) {
  return make("fieldset", { class: "facet" }, make("legend", {}, "Date"), [["", "Any time"], ...Object.entries(PERIODS)].map(([days, name]) => {
    const input = make("input", { type: "radio", name: "period", value: days, onchange: () => { state.days = days; changed(); } });
    input.checked = state.days === days;
    return make("label", {}, input, make("span", {}, name));
  }));
}
