// Charts of the newest epochs: stages stacked, and lines of rows, lag and late rows.

import { el, svg, table } from "./dom.js";
import { count, duration, instant, rate } from "./format.js";

const CHART = { width: 620, height: 150, left: 46, bottom: 18, top: 8 };
const LINES = { width: 300, height: 46 };

/** Return the time of each stage of an epoch, in the order of the names; the last one, `other`, is the rest of the epoch's time. */
function timesOf(epoch, names) {
  const known = names.slice(0, -1).map((name) => epoch.stages[name] ?? 0);
  // What runs beside an epoch is a stage, too, so the stages may take longer than the epoch.
  const rest = Math.max(0, epoch.took_ms - known.reduce((sum, time) => sum + time, 0));
  return [...known, rest];
}

function bars(epochs, names) {
  const { width, height, left, bottom, top } = CHART;
  const totals = epochs.map((epoch) => timesOf(epoch, names).reduce((sum, time) => sum + time, 0));
  const most = Math.max(1, ...totals);
  const step = (width - left) / Math.max(epochs.length, 12);
  const scale = (height - bottom - top) / most;
  const marks = [0, 0.5, 1].map((share) => {
    const y = height - bottom - share * most * scale;
    return [
      svg("line", { class: "grid", x1: left, x2: width, y1: y, y2: y }),
      svg("text", { class: "tick", x: left - 5, y: y + 4, "text-anchor": "end" }, duration(Math.round(share * most))),
    ];
  });
  const every = Math.max(1, Math.ceil(epochs.length / 8));
  const columns = epochs.map((epoch, at) => {
    const x = left + at * step;
    let y = height - bottom;
    const parts = timesOf(epoch, names).map((time, stage) => {
      y -= time * scale;
      return time ? svg("rect", { class: `stage-${stage % 9}`, x: x + 1, y, width: Math.max(1, step - 2), height: time * scale }) : null;
    });
    const text = epoch.slowest.map(([name, time]) => `${name} ${duration(time)}`);
    const tick = at % every === 0 ? svg("text", { class: "tick", x: x + step / 2, y: height - 4, "text-anchor": "middle" }, epoch.epoch) : null;
    return svg("g", {}, svg("title", {}, `epoch ${epoch.epoch}, ${duration(epoch.took_ms)}; longest: ${text.join(", ")}`), parts, tick);
  });
  const label = `Duration of the newest ${epochs.length} epochs by stage; the longest took ${duration(most)}`;
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, marks, columns);
}

/** Return the chart of epochs with their stages, its legend, and the same as a table. `stages` are their names, in order. */
export function drawEpochs({ epochs, stages }) {
  if (!epochs.length) return el("p", { class: "quiet" }, "No epoch yet.");
  const names = [...stages, "other"];
  const legend = names.map((name, stage) => {
    const swatch = svg("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: `stage-${stage % 9}`, width: 10, height: 10 }));
    return el("li", {}, swatch, name);
  });
  const rows = [...epochs].reverse().map((epoch) => ({
    cells: [
      count(epoch.epoch), instant(epoch.at), duration(epoch.took_ms), count(epoch.rows_in), count(epoch.rows_out),
      count(epoch.late), count(epoch.rejected), count(epoch.malformed), instant(epoch.watermark),
    ],
    tone: epoch.late || epoch.malformed ? "warn" : null,
  }));
  const number = (text) => ({ text, number: true });
  const columns = [number("epoch"), "at", number("took"), number("in"), number("out"), number("late"), number("rejected"), number("malformed"), "watermark"];
  return [
    bars(epochs, names),
    el("ul", { class: "legend" }, legend),
    el("details", { "data-key": "epochs as a table" }, el("summary", {}, "As a table"), table("Newest epochs", columns, rows, "")),
  ];
}

function line(name, values, text) {
  const { width, height } = LINES;
  const known = values.filter((value) => value !== null);
  const most = Math.max(1, ...known);
  const step = width / Math.max(1, values.length - 1);
  let path = "";
  let pen = "M";
  values.forEach((value, at) => {
    if (value === null) {
      pen = "M";
      return;
    }
    path += `${pen}${(at * step).toFixed(1)} ${(height - 3 - (value / most) * (height - 8)).toFixed(1)} `;
    pen = "L";
  });
  const last = known.length ? text(known.at(-1)) : "–";
  const greatest = known.length ? text(Math.max(...known)) : "–";
  return el(
    "figure",
    {},
    el("figcaption", {}, el("b", {}, name), ` ${last}, max ${greatest}`),
    svg("svg", { class: "line", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${name}: ${last}, at most ${greatest}` }, svg("path", { d: path || "M0 0", fill: "none" })),
  );
}

/** Return lines of the newest epochs: rows per second, lag, late rows. */
export function drawLines(epochs) {
  if (epochs.length < 2) return el("p", { class: "quiet" }, "Lines follow after two epochs.");
  const rates = epochs.slice(1).map((epoch, at) => (epoch.rows_in * 1000) / Math.max(epoch.at - epochs[at].at, epoch.took_ms, 1));
  return [
    line("rows read", rates, rate),
    line("lag", epochs.map((epoch) => epoch.lag_ms), duration),
    line("late rows", epochs.map((epoch) => epoch.late), count),
  ];
}
