// The routes of /openapi.json with their fields, an example for the shell, and a place to try it.

import { ask } from "./api.js";
import { find, make } from "./dom.js";

function resolve(schema, whole) {
  if (!schema?.$ref) return schema ?? {};
  return whole.components.schemas[schema.$ref.split("/").at(-1)];
}

function type(schema) {
  if (schema.anyOf) return schema.anyOf.filter((part) => part.type !== "null").map(type).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.const) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${type(schema.items)}`;
  return { integer: "number", string: "text", boolean: "true or false" }[schema.type] ?? schema.type ?? "any";
}

function field(name, schema, needed, said) {
  const otherwise = needed ? "" : schema.default == null ? ", optional" : `, else ${JSON.stringify(schema.default)}`;
  return make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, type(schema) + otherwise), make("td", {}, said ?? ""));
}

function rows(route, body) {
  const given = (route.parameters ?? []).map((p) => field(p.name, p.schema, p.required, p.description));
  const sent = Object.entries(body?.properties ?? {}).map(([name, schema]) =>
    field(name, schema, body.required?.includes(name), schema.description));
  return [...given, ...sent];
}

function example(body) {
  const needed = Object.entries(body.properties).filter(([name]) => body.required?.includes(name));
  return Object.fromEntries(needed.map(([name, schema]) => [name, schema.examples?.[0] ?? "…"]));
}

function shell(method, path, sent) {
  const address = `${location.origin}${path}`;
  return method === "POST"
    ? `curl ${address} -H 'Content-Type: application/json' -d '${JSON.stringify(sent)}'`
    : `curl '${address}'`;
}

function trial(path, sent, name) {
  const area = make("textarea", { id: name, spellcheck: "false" }, JSON.stringify(sent, null, 2));
  const out = make("pre", { hidden: true, tabindex: "0", role: "region", "aria-label": `Answer of ${path}` });
  const send = async () => {
    out.hidden = false;
    try {
      out.textContent = JSON.stringify(await ask(path, JSON.parse(area.value)), null, 2).slice(0, 6000);
    } catch (error) {
      out.textContent = error.message;
    }
  };
  return make("details", {}, make("summary", {}, "Try it"), make("label", { for: name }, "Body"), area,
    make("button", { type: "button", onclick: send }, "Send"), out);
}

function section(path, method, route, whole) {
  const body = resolve(route.requestBody?.content["application/json"].schema, whole);
  const fields = rows(route, body.properties ? body : null);
  const sent = body.properties ? example(body) : null;
  const query = (route.parameters ?? []).filter((p) => p.required).map((p) => `${p.name}=…`).join("&");
  return make("section", { class: "route" },
    make("h3", {}, make("span", {}, method), path), make("p", {}, route.summary ?? ""),
    fields.length ? make("table", {}, make("tbody", {}, fields)) : null,
    make("pre", { tabindex: "0", role: "region", "aria-label": `${method} ${path} by curl` }, shell(method, query ? `${path}?${query}` : path, sent)),
    sent ? trial(path, sent, `body-${path.replaceAll("/", "-")}`) : null);
}

async function start() {
  const whole = await ask("/openapi.json");
  find("about").textContent = whole.info.description.replaceAll("`", "");
  const groups = {};
  for (const [path, methods] of Object.entries(whole.paths)) {
    for (const [method, route] of Object.entries(methods)) {
      (groups[route.tags?.[0] ?? "other"] ??= []).push(section(path, method.toUpperCase(), route, whole));
    }
  }
  find("routes").replaceChildren(...Object.entries(groups).flatMap(([name, routes]) => [make("h2", {}, name), ...routes]));
}

start().catch((error) => {
  find("problem").textContent = error.message;
  find("problem").hidden = false;
});
