"use strict";
// Updates the page of a running study from its journal; the charts are those of the report.
const part = (name) => document.querySelector(`[data-part="${name}"]`);
const count = (number) => number.toLocaleString("en-GB");
const begun = { time: performance.now(), done: data.live.line.done };

function left(facts) {
  const seconds = (performance.now() - begun.time) / 1000, done = facts.done - begun.done;
  if (seconds < 5 || done < 1) return "";
  const rest = (seconds * (facts.rounds - facts.done)) / done;
  for (const [size, unit] of [[86400, "days"], [3600, "hours"], [60, "minutes"]])
    if (rest >= 2 * size) return ` About ${Math.round(rest / size)} ${unit} left.`;
  return ` About ${Math.max(1, Math.round(rest))} seconds left.`;
}
function tell(facts) {
  part("words").textContent = `Running: ${count(facts.done)} of ${count(facts.rounds)} rounds`;
  part("bar").max = Math.max(1, facts.rounds);
  part("bar").value = facts.done;
  part("rests").textContent = `${count(facts.finished)} of ${count(facts.runs)} runs are finished. The report below shows the rounds so far.${left(facts)}`;
}

// words and tables are the server's; pictures stay, with what was chosen in them, and are drawn anew
function reword(anchor, markup) {
  const now = document.getElementById(anchor), fresh = new DOMParser().parseFromString(markup, "text/html").body;
  const old = [...now.children].slice(1), next = [...fresh.children]; // the first is the heading
  if (old.length !== next.length) {
    fresh.querySelectorAll("[data-picture]").forEach((place) => place.replaceWith(now.querySelector(`[data-picture="${place.dataset.picture}"]`) || place));
    return now.replaceChildren(now.firstElementChild, ...fresh.childNodes);
  }
  old.forEach((node, i) => {
    if (node.matches("[data-picture]") || node.querySelector("[data-picture]") || node.isEqualNode(next[i])) return;
    if (node.matches("details")) next[i].open = node.open;
    node.replaceWith(next[i]);
  });
}
function take(fresh) {
  for (const [name, value] of Object.entries(fresh)) {
    if (name === "metrics" || name === "ranks") value.forEach((each, i) => Object.assign(data[name][i], each)); // pictures hold on to these
    else data[name] = value;
  }
  if (!document.querySelector(".tip:not([hidden])")) redraw(); // somebody is reading a value
}

tell(data.live.line);
listen(`/events?run=${encodeURIComponent(data.live.line.name)}`, {
  progress: tell,
  look: (look) => {
    if (look.shape !== data.live.shape) return location.reload();
    look.sections.forEach(([anchor, markup]) => reword(anchor, markup));
    take(look.data);
    document.documentElement.dataset.looks = +(document.documentElement.dataset.looks || 0) + 1;
  },
  ended: () => location.reload(),
});
