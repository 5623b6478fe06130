// The page by keyboard alone: through the results with the arrows, everything else by one letter.

import { find } from "./dom.js";

const seen = (node) => node.offsetParent !== null;
const titles = (column) => [...column.querySelectorAll(".title")].filter(seen);
const columns = () => [...document.querySelectorAll(".column")].filter(seen);

function place() {
  const all = columns();
  for (const [side, column] of all.entries()) {
    const hit = document.activeElement?.closest?.(".hit");
    const at = hit && column.contains(hit) ? titles(column).indexOf(hit.querySelector(".title")) : -1;
    if (at >= 0) return { side, at, all };
  }
  return { side: 0, at: -1, all };
}

function go(step, aside) {
  const { side, at, all } = place();
  if (!all.length) return;
  if (at + step < 0 && at >= 0 && !aside) return find("query").focus();
  const target = all[Math.min(Math.max(side + aside, 0), all.length - 1)];
  const rows = titles(target);
  const row = rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
  row?.focus();
  row?.closest(".hit").scrollIntoView({ block: "nearest" });
}

export function listen({ choose }) {
  const letters = {
    "/": () => find("query").select(),
    "?": () => find("keys").showModal(),
    w: () => document.activeElement?.closest?.(".hit")?.querySelector(".why").click(),
    Escape: () => find("query").select(),
    1: () => choose(0), 2: () => choose(1), 3: () => choose(2),
  };
  const arrows = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target === find("query");
    const choosing = event.target.matches?.("input[type=radio]");
    const arrow = arrows[event.key];
    if (arrow && !choosing && (!typing || event.key === "ArrowDown") && (typing || place().at >= 0)) {
      event.preventDefault();
      go(...arrow);
    } else if (!typing && letters[event.key]) {
      event.preventDefault();
      letters[event.key]();
    }
  });
  for (const button of document.querySelectorAll("[data-close]")) {
    button.addEventListener("click", () => button.closest("dialog").close());
  }
  find("show-keys").addEventListener("click", () => find("keys").showModal());
}
