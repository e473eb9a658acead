"use strict";
// Lines with bands, and intervals, as SVG. Text from the journal only ever becomes text nodes.
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = document.querySelector("svg").namespaceURI;
const hidden = new Set();
const redraws = [];
let forced = 0; // a width that printing asks for

function made(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
function drawn(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const classOf = (arm) => `arm c${arm % 7} d${Math.floor(arm / 7) % 3}`;
const keyOf = (arm) =>
  drawn("svg", { class: "key", viewBox: "0 0 24 8", "aria-hidden": "true" },
    drawn("line", { class: classOf(arm), x1: 1, y1: 4, x2: 23, y2: 4 }));
const widthOf = (box) => Math.max(260, Math.floor(forced || box.clientWidth || 800));

function plain(value, digits = 4) {
  if (value === null || !isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e12) return value.toExponential(2);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"]]) if (size >= unit) return `${+(value / unit).toPrecision(digits)} ${letter}`;
  if (size >= 1e4) return Math.round(value).toLocaleString("en-GB");
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return String(+value.toPrecision(digits)).replace("-", "−");
}
const shown = (value, share) => (value === null ? "–" : share ? `${(100 * value).toFixed(1)} %`.replace("-", "−") : plain(value));

function ticks(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(at * step);
  return found;
}
const isFlat = (low, high) => high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high)); // apart by rounding only
function logTicks(low, high) {
  const found = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++)
    for (const m of [1, 2, 5]) if (m * 10 ** p >= low && m * 10 ** p <= high) found.push(m * 10 ** p);
  return found.length ? found : [low, high];
}
function scale(low, high, from, to, log) {
  const f = log ? Math.log10 : (v) => v;
  const span = f(high) - f(low) || 1;
  return (v) => from + ((f(v) - f(low)) / span) * (to - from);
}

function legend(box, arms) {
  box.replaceChildren();
  if (arms.length < 2) return;
  for (const arm of arms) {
    const button = made("button", { type: "button", "aria-pressed": String(!hidden.has(arm)) }, keyOf(arm), data.arms[arm]);
    button.addEventListener("click", () => {
      hidden.has(arm) ? hidden.delete(arm) : hidden.add(arm);
      if (arms.every((each) => hidden.has(each))) hidden.clear();
      redraws.forEach((draw) => draw());
    });
    const fade = (on) => box.parentElement.querySelectorAll("[data-arm]").forEach((node) => node.classList.toggle("faded", on && node.dataset.arm !== String(arm)));
    button.addEventListener("pointerenter", () => fade(true));
    button.addEventListener("pointerleave", () => fade(false));
    box.append(button);
  }
}

function tipAt(chart, x, y, rows) {
  let tip = chart.querySelector(".tip");
  if (!tip) chart.append((tip = made("div", { class: "tip", role: "status" })));
  tip.replaceChildren(...rows);
  tip.hidden = false;
  const room = chart.clientWidth - tip.offsetWidth;
  tip.style.left = `${Math.max(0, Math.min(x + 14 > room ? x - tip.offsetWidth - 14 : x + 14, room))}px`;
  tip.style.top = `${Math.max(0, y - tip.offsetHeight / 2)}px`;
}
const hideTip = (chart) => chart.querySelectorAll(".tip").forEach((tip) => (tip.hidden = true));
const tipRow = (name, value, arm) => {
  const row = made("div", {}, name, made("b", {}, value));
  if (arm !== undefined) row.prepend(keyOf(arm));
  return row;
};

// curves: [{arm, x, mean, low, high}]; low and high may be absent
function lineChart(chart, { curves, xLabel, yLabel, share, xShare, fromZero, log, marks }) {
  chart.replaceChildren();
  const shownCurves = curves.filter((curve) => !hidden.has(curve.arm) && curve.mean.some((v) => v !== null));
  if (!shownCurves.length) return void chart.append(made("p", { class: "note" }, "No values were measured."
));
  const width = widthOf(chart), height = Math.round(Math.max(230, Math.min(360, width * 0.42)));
  const values = shownCurves.flatMap((c) => [...c.mean, ...(c.low || []), ...(c.high || [])]).filter((v) => v !== null && (!log || v > 0));
  let low = Math.min(...values), high = Math.max(...values);
  if (fromZero) low = Math.min(0, low);
  if (share && !log) [low, high] = [Math.max(0, low), Math.min(1, high)];
  if (isFlat(low, high)) [low, high] = low === 0 ? [0, 1] : log ? [low / 2, low * 2] : [low - Math.abs(low) * 0.1, high + Math.abs(high) * 0.1];
  if (!log) { const pad = (high - low) * 0.04; [low, high] = [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad]; }
  const xs = shownCurves.flatMap((c) => c.x);
  let left = Math.min(...xs), right = Math.max(...xs);
  if (isFlat(left, right)) [left, right] = [left - 0.5, right + 0.5];
  const yTicks = log ? logTicks(low, high) : ticks(low, high, height / 45);
  const texts = yTicks.map((v) => (share ? `${+(100 * v).toPrecision(4)} %` : plain(v)));
  const margin = { left: 14 + 7 * Math.max(...texts.map((t) => t.length)), right: 24, top: 26, bottom: 40 };
  const X = scale(left, right, margin.left, width - margin.right), Y = scale(low, high, height - margin.bottom, margin.top, log);
  const root = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${yLabel} against ${xLabel}` });
  if (shownCurves.length > 6) root.classList.add("many");
  yTicks.forEach((v, i) => root.append(
    drawn("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: Y(v), y2: Y(v) }),
    drawn("text", { x: margin.left - 6, y: Y(v) + 4, "text-anchor": "end" }, texts[i])));
  const bottom = height - margin.bottom;
  root.append(drawn("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: bottom, y2: bottom }));
  for (const v of ticks(left, right, width / 110)) root.append(
    drawn("line", { class: "axis", x1: X(v), x2: X(v), y1: bottom, y2: bottom + 4 }),
    drawn("text", { x: X(v), y: bottom + 17, "text-anchor": "middle" }, xShare ? `${Math.round(100 * v)} %` : plain(v)));
  root.append(
    drawn("text", { x: width - margin.right, y: height - 4, "text-anchor": "end" }, xLabel),
    drawn("text", { x: 2, y: 12, class: "name" }, yLabel));
  drawMarks(root, marks || [], X, margin.top, bottom);
  const bands = drawn("g"), lines = drawn("g"); // every line over every band
  const clip = (v) => Math.max(margin.top, Math.min(bottom, Y(v))); // a share has no band below 0 or above 100 %
  for (const curve of shownCurves) drawCurve(bands, lines, curve, X, Y, clip, log);
  root.append(bands, lines);
  const cross = drawn("line", { class: "axis", y1: margin.top, y2: bottom, visibility: "hidden" });
  root.append(cross);
  chart.append(root);
  root.addEventListener("pointermove", (event) => {
    const at = root.getBoundingClientRect(), zoom = width / at.width, x = (event.clientX - at.left) * zoom;
    const nearest = shownCurves.map((c) => {
      let best = 0;
      c.x.forEach((v, i) => { if (Math.abs(X(v) - x) < Math.abs(X(c.x[best]) - x)) best = i; });
      return { curve: c, best };
    });
    const line = nearest.reduce((a, b) => (Math.abs(X(b.curve.x[b.best]) - x) < Math.abs(X(a.curve.x[a.best]) - x) ? b : a));
    const value = line.curve.x[line.best];
    cross.setAttribute("x1", X(value)); cross.setAttribute("x2", X(value)); cross.setAttribute("visibility", "visible");
    nearest.sort((a, b) => (b.curve.mean[b.best] ?? -Infinity) - (a.curve.mean[a.best] ?? -Infinity));
    const rows = nearest.map(({ curve, best }) => tipRow(data.arms[curve.arm],
      shown(curve.mean[best], share) + (curve.half ? ` ± ${curve.half[best] === null ? "–" : shown(curve.half[best], share)}` : ""), curve.arm));
    const happened = (marks || []).filter((m) => m.at === value).flatMap((m) => m.texts).slice(0, 4).map((t) => made("div", {}, t));
    tipAt(chart, X(value) / zoom, (event.clientY - at.top), [made("strong", {}, `${xLabel}: ${xShare ? Math.round(100 * value) + " %" : plain(value)}`), ...rows, ...happened]);
  });
  root.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); hideTip(chart); });
}

function drawMarks(root, marks, X, top, bottom) {
  for (const mark of marks) {
    if (mark.at === undefined) continue;
    const line = drawn("line", { class: mark.tall ? "mark event" : "axis event", x1: X(mark.at), x2: X(mark.at), y1: mark.tall ? top : bottom - 5, y2: bottom });
    line.append(drawn("title", {}, `round ${mark.round}: ${mark.texts.join("; ")}`));
    root.append(line);
  }
}

function drawCurve(bands, lines, curve, X, Y, clip, log) {
  const good = (v) => v !== null && (!log || v > 0);
  const runs = [];
  curve.mean.forEach((v, i) => {
    if (!good(v)) return;
    if (i && good(curve.mean[i - 1])) runs[runs.length - 1].push(i); else runs.push([i]);
  });
  const floor = (v, i) => (log && v <= 0 ? curve.mean[i] : v);
  for (const run of runs) {
    if (curve.low && run.length > 1) {
      const over = run.map((i) => `${X(curve.x[i]).toFixed(1)},${clip(curve.high[i]).toFixed(1)}`);
      const under = run.map((i) => `${X(curve.x[i]).toFixed(1)},${clip(floor(curve.low[i], i)).toFixed(1)}`).reverse();
      bands.append(drawn("polygon", { class: `c${curve.arm % 7} band`, "data-arm": curve.arm, points: [...over, ...under].join(" ") }));
    }
    if (run.length === 1) lines.append(drawn("circle", { class: `c${curve.arm % 7} dot`, "data-arm": curve.arm, cx: X(curve.x[run[0]]), cy: Y(curve.mean[run[0]]), r: 3.5 }));
    else lines.append(drawn("polyline", { class: classOf(curve.arm), "data-arm": curve.arm, points: run.map((i) => `${X(curve.x[i]).toFixed(1)},${Y(curve.mean[i]).toFixed(1)}`).join(" ") }));
  }
}

// rows: [{arm, mean, low, high}], differences from the baseline
function forest(chart, { rows, label, points }) {
  chart.replaceChildren();
  const width = widthOf(chart), line = 30, narrow = width < 620;
  const longest = Math.max(...rows.map((r) => data.arms[r.arm].length));
  const left = narrow ? 12 : Math.min(330, width * 0.32, 30 + 7.2 * longest), top = 8, height = top + rows.length * (narrow ? line + 16 : line) + 44;
  const factor = points ? 100 : 1;
  const ends = rows.flatMap((r) => [r.mean, r.low ?? r.mean, r.high ?? r.mean]).map((v) => v * factor);
  let low = Math.min(0, ...ends), high = Math.max(0, ...ends);
  if (isFlat(low, high)) [low, high] = [-1, 1];
  const pad = (high - low) * 0.05;
  const X = scale(low - pad, high + pad, left, width - 14);
  const root = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  for (const v of ticks(low - pad, high + pad, (width - left) / 90)) root.append(
    drawn("line", { class: "grid", x1: X(v), x2: X(v), y1: top, y2: height - 36 }),
    drawn("text", { x: X(v), y: height - 20, "text-anchor": "middle" }, plain(v)));
  root.append(drawn("line", { class: "axis", x1: X(0), x2: X(0), y1: top, y2: height - 36 }),
    drawn("text", { x: width - 14, y: height - 4, "text-anchor": "end" }, label));
  rows.forEach((row, i) => {
    const step = narrow ? line + 16 : line, y = top + i * step + (narrow ? 30 : step / 2);
    const most = Math.floor((narrow ? width - 20 : left - 16) / 7.2), name = data.arms[row.arm];
    const short = name.length > most ? name.slice(0, most - 1) + "…" : name;
    root.append(drawn("text", { class: "name", x: narrow ? left : left - 12, y: narrow ? y - 14 : y + 4, "text-anchor": narrow ? "start" : "end" }, short));
    if (row.low !== null) root.append(drawn("line", { class: classOf(row.arm), x1: X(row.low * factor), x2: X(row.high * factor), y1: y, y2: y }));
    root.append(drawn("circle", { class: `c${row.arm % 7} dot`, cx: X(row.mean * factor), cy: y, r: 5 }));
  });
  chart.append(root);
}
