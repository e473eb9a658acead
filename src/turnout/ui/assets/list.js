"use strict";
// The list of studies. Values from journals only ever become text nodes.
const first = JSON.parse(document.getElementById("data").textContent);
const STATES = ["running", "finished", "interrupted", "failed", "unreadable"];
const part = (name) => document.querySelector(`[data-part="${name}"]`);
const studies = new Map(); // by name: {facts, line}
const ticked = new Set();
let state = "all", by = "started", down = true;

function made(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const count = (number) => number.toLocaleString("en-GB");
const plural = (number, thing) => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;

function tickOf(facts) {
  const box = made("input", { type: "checkbox", name: "run", value: facts.name, "aria-label": `select ${facts.name}` });
  box.checked = ticked.has(facts.name);
  box.disabled = facts.problem !== "";
  box.addEventListener("change", () => { box.checked ? ticked.add(facts.name) : ticked.delete(facts.name); tellTicked(); });
  return box;
}
function nameOf(facts) {
  const name = facts.problem ? made("span", {}, facts.study) : made("a", { href: `/show?run=${encodeURIComponent(facts.name)}` }, facts.study);
  const size = facts.problem || `${plural(facts.arms, "arm")} × ${plural(facts.seeds, "seed")}`;
  const where = facts.name === facts.study ? "" : `${facts.name} · `;
  return [name, made("small", {}, where + size)];
}
function roundsOf(facts) {
  if (facts.problem) return ["–"];
  const told = facts.done === facts.rounds ? count(facts.done) : `${count(facts.done)} of ${count(facts.rounds)}`;
  return [made("progress", { max: Math.max(1, facts.rounds), value: facts.done, "aria-label": "rounds" }), made("small", {}, told)];
}
function lineOf(facts) {
  return made("tr", {},
    made("td", { class: "tick" }, tickOf(facts)),
    made("th", { scope: "row" }, ...nameOf(facts)),
    made("td", { class: "state" }, made("span", { class: `badge ${facts.state}` }, facts.state)),
    made("td", { class: "rounds" }, ...roundsOf(facts)),
    made("td", { class: "accuracy" }, facts.accuracy),
    made("td", { class: "when" }, facts.when || "–"));
}

// a line that is there keeps its place, its tick and the reader's focus
function take(facts) {
  const line = studies.get(facts.name)?.line, fresh = lineOf(facts);
  if (line) [...fresh.children].forEach((cell, i) => { if (i && !cell.isEqualNode(line.children[i])) line.children[i].replaceWith(cell); });
  studies.set(facts.name, { facts: { ...facts, share: facts.rounds ? facts.done / facts.rounds : 0 }, line: line || fresh });
}
function drop(name) {
  studies.delete(name);
  ticked.delete(name);
}
function compared(a, b) {
  const one = a.facts[by], other = b.facts[by];
  const order = typeof one === "string" ? one.localeCompare(other) : (one ?? -1) - (other ?? -1);
  return (down ? -order : order) || a.facts.name.localeCompare(b.facts.name);
}
function arrange() {
  const wanted = part("find").value.trim().toLowerCase();
  const shown = [...studies.values()].filter(({ facts }) => (state === "all" || facts.state === state)
    && `${facts.study} ${facts.name} ${facts.state}`.toLowerCase().includes(wanted)).sort(compared);
  const body = document.querySelector("tbody");
  if (shown.length !== body.children.length || shown.some(({ line }, i) => line !== body.children[i])) body.replaceChildren(...shown.map(({ line }) => line));
  part("none").hidden = shown.length > 0;
  part("none").textContent = studies.size ? "No run matches." : "There are no runs yet. Start one with turnout run demo; it will appear here.";
  tellStates();
  tellTicked();
}
function tellStates() {
  const tally = new Map(STATES.map((each) => [each, 0]));
  for (const { facts } of studies.values()) tally.set(facts.state, tally.get(facts.state) + 1);
  if (state !== "all" && !tally.get(state)) { state = "all"; return arrange(); }
  const entries = [["all", studies.size], ...tally].filter(([name, number]) => name === "all" || number > 0);
  const told = `${state}: ${entries}`;
  if (part("states").dataset.told === told) return;
  part("states").dataset.told = told;
  part("states").replaceChildren(...entries.map(([name, number]) => {
    const button = made("button", { type: "button", "aria-pressed": String(name === state) }, `${name} ${count(number)}`);
    button.addEventListener("click", () => { state = name; arrange(); });
    return button;
  }));
}
function tellTicked() {
  document.querySelector(".compare").hidden = ticked.size === 0;
  part("ticked").textContent = `${plural(ticked.size, "run")} selected`;
  part("go").textContent = ticked.size > 1 ? "Compare side by side" : "Show";
}

document.querySelectorAll("thead [data-by]").forEach((head) => head.querySelector("button").addEventListener("click", () => {
  down = head.dataset.by === by ? !down : !["study", "state"].includes(head.dataset.by);
  by = head.dataset.by;
  document.querySelectorAll("thead [data-by]").forEach((each) => each.setAttribute("aria-sort", each === head ? (down ? "descending" : "ascending") : "none"));
  arrange();
}));
part("find").addEventListener("input", arrange);
part("clear").addEventListener("click", () => { ticked.clear(); document.querySelectorAll("tbody input").forEach((box) => (box.checked = false)); tellTicked(); });
// the form sends every tick, also those of lines that are not shown now
document.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  location.href = `/show?${[...ticked].map((name) => `run=${encodeURIComponent(name)}`).join("&")}`;
});

first.rows.forEach(take);
arrange();
listen(`/events?since=${first.since}`, {
  all: ({ rows }) => {
    const here = new Set(rows.map((facts) => facts.name));
    [...studies.keys()].filter((name) => !here.has(name)).forEach(drop);
    rows.forEach(take);
    arrange();
  },
  some: ({ rows, gone }) => { rows.forEach(take); gone.forEach(drop); arrange(); },
});
document.documentElement.dataset.ready = "yes";
