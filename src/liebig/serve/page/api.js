// Calls of the server's API; a token is asked for once and kept until the browser window is closed.

import { find } from "./dom.js";

const KEY = "liebig-token";

export class Refused extends Error {}

function headers(body) {
  const token = sessionStorage.getItem(KEY);
  return { ...(body && { "Content-Type": "application/json" }), ...(token && { Authorization: `Bearer ${token}` }) };
}

async function request(path, body, signal) {
  const options = { method: body ? "POST" : "GET", headers: headers(body), body: body && JSON.stringify(body), signal };
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("Cannot reach the server. Is it still running?");
  }
  if (response.status === 401) {
    await askForToken();
    return request(path, body, signal);
  }
  if (response.ok) return response;
  const { error } = await response.json();
  throw new Refused(error?.message ?? error);
}

export const ask = async (path, body, signal) => (await request(path, body, signal)).json();

// The values of an answer that comes as server-sent events.
export async function* stream(path, body, signal) {
  const reader = (await request(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const events = (rest + part.value).split("\n\n");
    rest = events.pop();
    for (const event of events) yield JSON.parse(event.replace(/^data: /, ""));
  }
}

let asking = null;
function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = find("wanted");
    find("token").value = "";
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, find("token").value);
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

export const info = () => ask("/info");
export const compare = (question, signal) => ask("/compare", question, signal);
export const search = (question, signal) => ask("/search", { ...question, snippets: true }, signal);
export const explain = (question) => ask("/explain", question);
export const read = (passage, query) => ask(`/document?${new URLSearchParams({ passage, ...(query && { query }) })}`);
