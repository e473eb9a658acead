"use strict";
// Draws the charts into their placeholders, and redraws them when a control changes.
const find = (name) => document.querySelector(`[data-picture="${name}"]`);
const inside = (box, part) => box.querySelector(`[data-part="${part}"]`);

function option(value, text, group) {
  return made("option", { value, ...(group ? { "data-group": group } : {}) }, text);
}
function onChange(box, part, draw) {
  const control = inside(box, part);
  if (control) control.addEventListener("change", draw);
}
function switches(holder, entries, draw) {
  let chosen = entries[0][0];
  if (entries.length < 2) { // nothing to switch
    (holder.closest(".controls").childElementCount === 2 ? holder.closest(".controls") : holder).hidden = true;
    return () => chosen;
  }
  for (const [value, text] of entries) {
    const button = made("button", { type: "button", "data-value": value, "aria-pressed": String(value === chosen) }, text);
    button.addEventListener("click", () => {
      chosen = value;
      holder.querySelectorAll("button").forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
      draw();
    });
    holder.append(button);
  }
  return () => chosen;
}

const MAIN = ["evaluation", "participation"]; // the other groups have charts of their own
function withBand(c, at, band) {
  const curve = { arm: c.arm, x: c.x[at], mean: c.mean };
  if (c.seeds > 1 && band === "std") Object.assign(curve, { low: c.mean.map((m, i) => (m === null ? null : m - c.std[i])), high: c.mean.map((m, i) => (m === null ? null : m + c.std[i])), half: c.std });
  if (c.seeds > 1 && band === "range") Object.assign(curve, { low: c.low, high: c.high });
  return curve;
}
function drawMetric(chart, metric, at, band, more) {
  const marks = data.marks.map((m) => ({ ...m, at: at === 0 ? m.round : costAt(metric.curves, m, at) }));
  const curves = metric.curves.map((c) => withBand(c, at, band));
  lineChart(chart, { curves, xLabel: data.axes[at][1], yLabel: metric.label, share: metric.share, marks, ...more });
}
const many = data.arms.length > 6; // with more arms, bands would cover each other
const usualBand = many ? "none" : "std";

function curvesPicture() {
  const box = find("curves");
  if (!box) return;
  const metric = inside(box, "metric"), band = inside(box, "band"), log = inside(box, "log");
  let group = null;
  data.metrics.forEach((each, i) => {
    if (!MAIN.includes(each.group)) return;
    if (!group || group.label !== each.group) metric.append((group = made("optgroup", { label: each.group })));
    group.append(option(i, each.label));
  });
  band.value = usualBand;
  inside(box, "banded").hidden = data.metrics.every((each) => each.curves.every((c) => c.seeds < 2));
  const axis = switches(inside(box, "axis"), data.axes.map(([, label], i) => [i, label]), () => draw());
  function draw() {
    const chosen = data.metrics[metric.value];
    drawMetric(inside(box, "chart"), chosen, axis(), band.value, { log: log.checked });
    legend(inside(box, "legend"), chosen.curves.map((c) => c.arm));
  }
  ["metric", "band", "log"].forEach((part) => onChange(box, part, draw));
  redraws.push(draw);
}
// one small chart for each metric of a group
function smallPictures(name, group) {
  const box = find(name);
  if (!box) return;
  const metrics = data.metrics.filter((each) => each.group === group && each.curves.some((c) => c.mean.length > 1));
  const charts = metrics.map(() => made("div", { class: "chart" }));
  inside(box, "charts").append(...charts);
  const axis = switches(inside(box, "axis"), data.axes.map(([, label], i) => [i, label]), () => draw());
  function draw() {
    metrics.forEach((metric, i) => drawMetric(charts[i], metric, axis(), usualBand, {}));
    legend(inside(box, "legend"), [...new Set(metrics.flatMap((metric) => metric.curves.map((c) => c.arm)))].sort((a, b) => a - b));
  }
  redraws.push(draw);
}
// an event's place on a cost axis: the mean over the arms in which it happened
function costAt(curves, mark, axis) {
  const found = curves.filter((c) => mark.arms.includes(c.arm)).map((c) => {
    const i = c.x[0].findIndex((round) => round >= mark.round);
    return i < 0 ? undefined : c.x[axis][i];
  }).filter((v) => v !== undefined);
  return found.length ? found.reduce((a, b) => a + b, 0) / found.length : undefined;
}

function rankPictures() {
  for (const rank of data.ranks) {
    const chart = document.querySelector(`[data-part="${rank.key}"]`);
    if (!chart) continue;
    const curves = rank.curves.map((c) => (many ? { arm: c.arm, x: c.x, mean: c.mean } : c));
    redraws.push(() => {
      lineChart(chart, { curves, xLabel: rank.x, yLabel: rank.y, share: rank.share, xShare: true, fromZero: true });
      legend(inside(chart.closest("[data-picture]"), "legend"), curves.map((c) => c.arm));
    });
  }
}

function mapPictures() {
  const box = find("map");
  if (!box) return;
  const arm = inside(box, "arm"), seed = inside(box, "seed"), order = inside(box, "order"), quantity = inside(box, "quantity");
  [...new Set(data.maps.runs.map((run) => run.arm))].forEach((each) => arm.append(option(each, data.arms[each])));
  const runNow = () => data.maps.runs.find((run) => run.arm === +arm.value && run.seed === +seed.value);
  function seeds() {
    const before = seed.value;
    seed.replaceChildren(...data.maps.runs.filter((run) => run.arm === +arm.value).map((run) => option(run.seed, run.seed)));
    if ([...seed.options].some((each) => each.value === before)) seed.value = before;
  }
  seeds();
  function draw() {
    const run = runNow();
    const known = run.holdings !== null;
    const timed = known && data.maps.holdings[run.holdings].seconds;
    order.querySelector('[value="sizes"]').disabled = !known;
    order.querySelector('[value="speed"]').disabled = !timed;
    if (order.selectedOptions[0].disabled) order.value = "times_answered";
    const map = heatMap(inside(box, "chart"), run, order.value, order.selectedOptions[0].textContent.trim(), quantity.value);
    quantity.querySelector('[value="all"]').disabled = map.binned;
    if (map.binned && quantity.value === "all") quantity.value = "used";
    stateLegend(inside(box, "legend"), map);
    const dots = find("shares"), labels = find("labels");
    if (dots) { dots.hidden = !known; if (known) scatter(inside(dots, "chart"), run); inside(dots, "of").textContent = `${data.arms[run.arm]}, seed ${run.seed}`; }
    if (labels) { labels.hidden = !known || !data.maps.holdings[run.holdings].labels; if (!labels.hidden) labelMap(inside(labels, "chart"), run, order.value); }
  }
  arm.addEventListener("change", () => { seeds(); draw(); });
  ["seed", "order", "quantity"].forEach((part) => onChange(box, part, draw));
  redraws.push(draw);
}
function stateLegend(box, { most, present }) {
  if (most !== null) {
    const ramp = made("span", { class: "ramp" });
    return box.replaceChildren(made("span", { class: "box" }, "0\u00a0%", ramp, `${shown(most, true)} of the clients and rounds in a cell`));
  }
  box.replaceChildren(...data.maps.states.flatMap((text, i) => {
    const patch = made("i");
    patch.style.background = `var(--${NAMES[i]})`;
    return present.has(i) ? [made("span", { class: "box" }, patch, text)] : [];
  }));
}

function forestPicture() {
  const box = find("forest");
  if (box) redraws.push(() => forest(inside(box, "chart"), data.forest));
}

curvesPicture();
forestPicture();
mapPictures();
rankPictures();
smallPictures("fairness", "fairness");
smallPictures("appeal", "appeal");
smallPictures("rules", "metrics of the rules");

const redraw = () => redraws.forEach((draw) => draw());
redraw();
let last = document.documentElement.clientWidth, waiting = 0;
window.addEventListener("resize", () => {
  if (document.documentElement.clientWidth === last) return;
  last = document.documentElement.clientWidth;
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(redraw);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
function printing(on) {
  forced = on ? 690 : 0;
  document.documentElement.toggleAttribute("data-print", on); // paper is light
  redraw();
}
window.addEventListener("beforeprint", () => printing(true));
window.addEventListener("afterprint", () => printing(false));
document.documentElement.dataset.ready = "yes";
