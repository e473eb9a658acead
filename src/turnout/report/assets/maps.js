"use strict";
// Participation on canvases: a map of clients by rounds, shares of data and aggregation, labels per client.
const KINDS = { B: Uint8Array, H: Uint16Array, I: Uint32Array, f: Float32Array };
const unpacked = new WeakMap();
function numbers(entry) {
  if (!unpacked.has(entry)) {
    const text = atob(entry.d), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    unpacked.set(entry, new KINDS[entry.t](bytes.buffer));
  }
  return unpacked.get(entry);
}
// the states of data.maps.states, in that order; each names a colour in page.css
const NAMES = ["unavailable", "idle", "complete", "partial", "late", "lost", "rejected", "working"];
const whichOf = (...names) => NAMES.map((name) => +names.includes(name));
const QUANTITIES = {
  all: null, up: whichOf(...NAMES.slice(1)), asked: whichOf(...NAMES.slice(2)), used: whichOf("complete", "partial"),
  ...Object.fromEntries(NAMES.slice(2).map((name) => [name, whichOf(name)])),
};
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
function rgb(name) {
  const hex = css(name).slice(1);
  return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

// one byte per client and round, rounds after rounds
const matrices = new Map();
function matrix(run) {
  if (matrices.has(run)) return matrices.get(run);
  const rounds = numbers(run.rounds).length, clients = run.clients, bits = numbers(data.maps.ups[run.up]);
  const perRound = Math.ceil(clients / 8), states = new Uint8Array(rounds * clients);
  for (let t = 0; t < rounds; t++) for (let i = 0; i < clients; i++) states[t * clients + i] = (bits[t * perRound + (i >> 3)] >> (i & 7)) & 1;
  const counts = numbers(run.counts), asked = numbers(run.asked), as = numbers(run.as);
  let at = 0;
  for (let t = 0; t < rounds; t++) for (let k = 0; k < counts[t]; k++, at++) states[t * clients + asked[at]] = as[at];
  matrices.clear(); // one at a time is enough
  matrices.set(run, states);
  return states;
}
function orderOf(run, by) {
  const order = Array.from({ length: run.clients }, (_, i) => i);
  if (by === "id") return order;
  const holding = run.holdings === null ? null : data.maps.holdings[run.holdings];
  if (by === "speed") {
    const seconds = holding && holding.seconds && numbers(holding.seconds);
    return seconds ? order.sort((a, b) => seconds[a] - seconds[b] || a - b) : order;
  }
  const values = by === "sizes" ? holding && numbers(holding.sizes) : numbers(run[by]);
  return values ? order.sort((a, b) => values[b] - values[a] || a - b) : order;
}

function canvasIn(chart, width, height, label) {
  chart.replaceChildren();
  const zoom = Math.min(3, window.devicePixelRatio || 1);
  const canvas = made("canvas", { width: Math.round(width * zoom), height: Math.round(height * zoom), role: "img", "aria-label": label });
  canvas.style.width = `${width}px`;
  chart.append(canvas);
  const pen = canvas.getContext("2d");
  pen.scale(zoom, zoom);
  pen.font = '12px system-ui, "Liberation Sans", sans-serif';
  return [canvas, pen, (at) => Math.round(at * zoom) / zoom]; // the last puts an edge on a pixel
}
const cut = (count, bins) => Array.from({ length: bins + 1 }, (_, i) => Math.floor((i * count) / bins));

function heatMap(chart, run, by, orderName, quantity) {
  const rounds = numbers(run.rounds), T = rounds.length, N = run.clients, states = matrix(run), order = orderOf(run, by);
  const width = widthOf(chart), narrow = width < 560, left = N <= 40 ? 34 : 12, top = 10, bottom = 34;
  const cellWidth = Math.min(80, (width - left - 8) / T), columns = cellWidth >= 2 ? T : Math.floor((width - left - 8) / 2);
  const tallest = narrow ? 320 : 460, cellHeight = N <= tallest ? Math.max(1, Math.min(18, Math.floor(tallest / N))) : 2;
  const rowsShown = N <= tallest ? N : tallest / 2, binned = columns < T || rowsShown < N;
  const across = columns < T ? (width - left - 8) / columns : cellWidth;
  const height = top + rowsShown * cellHeight + bottom;
  const [canvas, pen, snap] = canvasIn(chart, width, height, "map of clients by rounds");
  const palette = NAMES.map(css), low = rgb("low"), high = rgb("high");
  const chosen = QUANTITIES[binned && quantity === "all" ? "used" : quantity];
  const rowCuts = cut(N, rowsShown), columnCuts = cut(T, columns);
  const place = new Uint32Array(N);
  for (let r = 0; r < rowsShown; r++) for (let k = rowCuts[r]; k < rowCuts[r + 1]; k++) place[order[k]] = r;
  const sums = chosen ? new Float64Array(rowsShown * columns) : null;
  let most = 0;
  if (chosen) {
    for (let c = 0; c < columns; c++) for (let t = columnCuts[c]; t < columnCuts[c + 1]; t++)
      for (let i = 0; i < N; i++) sums[place[i] * columns + c] += chosen[states[t * N + i]];
    for (let r = 0; r < rowsShown; r++) for (let c = 0; c < columns; c++) {
      const cells = (rowCuts[r + 1] - rowCuts[r]) * (columnCuts[c + 1] - columnCuts[c]);
      most = Math.max(most, (sums[r * columns + c] /= cells));
    }
  }
  const gap = !binned && across >= 5 && cellHeight >= 5 ? 1 : 0;
  for (let r = 0; r < rowsShown; r++) for (let c = 0; c < columns; c++) {
    if (chosen) {
      const part = most ? sums[r * columns + c] / most : 0;
      pen.fillStyle = `rgb(${low.map((v, k) => Math.round(v + (high[k] - v) * part)).join(",")})`;
    } else pen.fillStyle = palette[states[c * N + order[r]]];
    const x0 = snap(left + c * across), x1 = snap(left + (c + 1) * across);
    pen.fillRect(x0, top + r * cellHeight, x1 - x0 - gap, cellHeight - gap);
  }
  const ink = css("soft"), end = top + rowsShown * cellHeight;
  pen.fillStyle = ink;
  pen.textAlign = "center";
  const xOf = (t) => left + ((columns < T ? (t + 0.5) * (columns / T) : t + 0.5) * across);
  for (const v of ticks(rounds[0], rounds[T - 1], Math.max(2, (across * columns) / 90))) {
    const t = rounds.findIndex((each) => each >= v);
    if (!Number.isInteger(v) || t < 0) continue;
    const half = pen.measureText(String(v)).width / 2;
    pen.fillText(String(v), Math.min(xOf(t), width - half), end + 15);
  }
  pen.textAlign = "left";
  const onTop = by === "id" ? "" : by === "speed" ? ", fastest on top" : ", most on top";
  pen.fillText(`rounds; clients sorted by ${orderName}${narrow ? "" : onTop}`, left, end + 30);
  if (left > 20 && cellHeight >= 11) {
    pen.textAlign = "right";
    order.forEach((i, r) => pen.fillText(String(i * data.maps.every_client), left - 6, top + r * cellHeight + cellHeight / 2 + 4));
  }
  for (const mark of data.marks) if (mark.arms.includes(run.arm)) {
    const t = rounds.findIndex((each) => each >= mark.round);
    if (t >= 0) pen.fillRect(xOf(t) - 1, 0, 2, 7);
  }
  hoverMap(chart, canvas, width, height, (x, y) => {
    const c = Math.floor((x - left) / across), r = Math.floor((y - top) / cellHeight);
    if (c < 0 || r < 0 || c >= columns || r >= rowsShown) return null;
    if (!binned) {
      const i = order[r];
      return [made("strong", {}, `${clientName(run, i)}, round ${rounds[c]}`), made("div", {}, data.maps.states[states[c * N + i]])];
    }
    const many = rowCuts[r + 1] - rowCuts[r], from = rounds[columnCuts[c]], to = rounds[columnCuts[c + 1] - 1];
    return [made("strong", {}, `${many} client${many > 1 ? "s" : ""}, round${from < to ? `s ${from}–${to}` : ` ${from}`}`), made("div", {}, shown(sums[r * columns + c], true))];
  });
  return { binned, most: chosen ? most : null, present: new Set(chosen ? [] : states) };
}

// a client's name where the data has names, else its number
function clientName(run, i) {
  const holding = data.maps.holdings[run.holdings];
  return holding?.names ? holding.names[i] : `client ${i * data.maps.every_client}`;
}

function hoverMap(chart, canvas, width, height, tell) {
  canvas.addEventListener("pointermove", (event) => {
    const at = canvas.getBoundingClientRect(), zoom = width / at.width;
    const x = (event.clientX - at.left) * zoom, y = (event.clientY - at.top) * zoom, rows = tell(x, y);
    rows ? tipAt(chart, x / zoom, y / zoom, rows) : hideTip(chart);
  });
  canvas.addEventListener("pointerleave", () => hideTip(chart));
}

// share of the aggregation and share of the data, one dot per client
function scatter(chart, run) {
  const holding = data.maps.holdings[run.holdings], sizes = numbers(holding.sizes), share = numbers(run.share);
  const width = widthOf(chart), height = Math.round(Math.max(260, Math.min(380, width * 0.7))), left = 62, bottom = 40, top = 22;
  const [canvas, pen] = canvasIn(chart, width, height, "share of the aggregation and share of the data");
  const xs = Array.from(sizes, (n) => n / holding.total), ys = Array.from(share);
  const most = Math.max(1e-12, xs.reduce((a, b) => Math.max(a, b), 0)), up = Math.max(most, ys.reduce((a, b) => Math.max(a, b), 0)), down = ys.reduce((a, b) => Math.min(a, b), 0);
  const least = xs.reduce((a, b) => Math.min(a, b), most), start = least > most / 2 ? least - (most - least + most / 50) / 5 : 0; // sizes much alike get the whole width
  const X = scale(start, most * 1.05 - start * 0.04, left, width - 14), Y = scale(down, up * 1.05, height - bottom, top);
  pen.strokeStyle = css("line"); pen.fillStyle = css("soft"); pen.textAlign = "end";
  const part = (v) => `${+(100 * v).toPrecision(3)} %`.replace("-", "−");
  for (const v of ticks(down, up * 1.05, height / 60)) {
    pen.beginPath(); pen.moveTo(left, Y(v)); pen.lineTo(width - 14, Y(v)); pen.stroke();
    pen.fillText(part(v), left - 6, Y(v) + 4);
  }
  pen.textAlign = "center";
  for (const v of ticks(start, most * 1.02, width / 110)) pen.fillText(part(v), X(v), height - bottom + 17);
  pen.textAlign = "end"; pen.fillText("share of the data", width - 14, height - 6);
  pen.textAlign = "left"; pen.fillStyle = css("ink"); pen.fillText("share of the aggregation", 2, 12);
  pen.strokeStyle = css("soft"); pen.setLineDash([4, 4]);
  const end = Math.min(most * 1.05 - start * 0.04, up * 1.05);
  pen.beginPath(); pen.moveTo(X(start), Y(start)); pen.lineTo(X(end), Y(end)); pen.stroke(); pen.setLineDash([]);
  pen.fillStyle = css(`c${run.arm % 7}`); pen.globalAlpha = xs.length > 500 ? 0.35 : 0.75;
  const radius = xs.length > 2000 ? 1.5 : xs.length > 200 ? 2.5 : 4;
  xs.forEach((x, i) => { pen.beginPath(); pen.arc(X(x), Y(ys[i]), radius, 0, 7); pen.fill(); });
  const times = numbers(run.times_answered);
  hoverMap(chart, canvas, width, height, (px, py) => {
    let best = -1, near = 150;
    xs.forEach((x, i) => { const d = (X(x) - px) ** 2 + (Y(ys[i]) - py) ** 2; if (d < near) [best, near] = [i, d]; });
    if (best < 0) return null;
    return [made("strong", {}, clientName(run, best)), tipRow("samples", String(sizes[best])),
      tipRow("share of the data", part(xs[best])), tipRow("share of the aggregation", part(ys[best])), tipRow("updates used", String(times[best]))];
  });
}

// labels by clients: the share of each label in a client's data

function labelMap(chart, run, by) {
  const holding = data.maps.holdings[run.holdings], C = holding.classes, N = run.clients, shares = numbers(holding.labels), order = orderOf(run, by);
  const width = widthOf(chart), left = 34, columns = Math.min(N, Math.floor((width - left - 8) / 2)), across = Math.min(50, (width - left - 8) / columns);
  const cellHeight = Math.max(3, Math.min(18, Math.floor(260 / C))), height = 6 + C * cellHeight + 26, cuts = cut(N, columns);
  const [canvas, pen, snap] = canvasIn(chart, width, height, "labels by clients");
  const low = rgb("low"), high = rgb("high"), at = (c, l) => {
    let sum = 0;
    for (let k = cuts[c]; k < cuts[c + 1]; k++) sum += shares[order[k] * C + l];
    return sum / (cuts[c + 1] - cuts[c]) / 255;
  };
  for (let c = 0; c < columns; c++) for (let l = 0; l < C; l++) {
    const part = Math.sqrt(at(c, l));
    pen.fillStyle = `rgb(${low.map((v, k) => Math.round(v + (high[k] - v) * part)).join(",")})`;
    const x0 = snap(left + c * across), x1 = snap(left + (c + 1) * across);
    pen.fillRect(x0, 6 + l * cellHeight, x1 - x0 - (across > 5 ? 1 : 0), cellHeight - (cellHeight > 5 ? 1 : 0));
  }
  pen.fillStyle = css("soft"); pen.textAlign = "right";
  const step = Math.max(1, Math.ceil(13 / cellHeight));
  for (let l = 0; l < C; l += step) pen.fillText(String(l), left - 6, 6 + l * cellHeight + cellHeight / 2 + 4);
  pen.textAlign = "left"; pen.fillText("clients", left, height - 6);
  hoverMap(chart, canvas, width, height, (x, y) => {
    const c = Math.floor((x - left) / across), l = Math.floor((y - 6) / cellHeight);
    if (c < 0 || c >= columns || l < 0 || l >= C) return null;
    const who = cuts[c + 1] - cuts[c] === 1 ? clientName(run, order[cuts[c]]) : `${cuts[c + 1] - cuts[c]} clients`;
    return [made("strong", {}, `${who}, label ${l}`), made("div", {}, `${shown(at(c, l), true)} of its data`)];
  });
}
