// The job's graph as a drawing: a box for each node, with what it does now.

import { el, svg } from "./dom.js";
import { bytes, count, duration, instant, rate, short, UNKNOWN } from "./format.js";
import { BOX, place } from "./layout.js";

const MARGIN = 6;
const LINE = 16;
const LEAST_SCALE = 0.62;

/** Return the lines of a box below its name, each [class, text]. */
function linesOf(node) {
  const lines = [];
  const into = node.in_per_second === null ? short(node.rows_in) : rate(node.in_per_second);
  const out = node.out_per_second === null ? short(node.rows_out) : rate(node.out_per_second);
  if (node.role === "source") lines.push(["rate", `reads ${into}`]);
  else if (node.role === "output") lines.push(["rate", `writes ${into}`]);
  else if (into !== UNKNOWN || out !== UNKNOWN) lines.push(["rate", `${into} → ${out}`]);
  if (node.lag_ms !== null) lines.push(["lag", `lag ${duration(node.lag_ms)}`]);
  if (node.held_by && node.role === "operator") lines.push(["held", `held by ${node.held_by}`]);
  if (node.late) lines.push(["late", `${count(node.late)} late`]);
  if (node.state) {
    const keys = node.state.keys === null ? `${short(node.state.rows)} rows` : `${short(node.state.keys)} keys`;
    lines.push(["state", `state ${keys}, ${bytes(node.state.bytes)}`]);
  }
  return lines;
}

/** Return the first line of a box: a name and a kind, or what a node does that nobody has named. */
function titleOf(node) {
  if (node.role === "step" && node.name.startsWith(`${node.kind}-`)) return [cut(node.text, 27), ""];
  const name = cut(node.name, 22);
  // Letters of the name and of the kind are at most so wide.
  const room = Math.floor((BOX.width - 28 - 8 * name.length) / 6.5);
  return [name, room >= 4 ? cut(node.kind, room) : ""];
}

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function label(node) {
  return `${node.kind} ${node.name}: ${linesOf(node).map(([, text]) => text).join("; ")}`;
}

function box(node, at, chosen, choose) {
  const lines = linesOf(node);
  const [name, kind] = titleOf(node);
  const select = () => choose(node.id);
  return svg(
    "g",
    {
      class: `box ${node.role}${node.late ? " has-late" : ""}${chosen === node.id ? " chosen" : ""}`,
      transform: `translate(${at.x} ${at.y})`,
      tabindex: "0",
      role: "button",
      "aria-pressed": String(chosen === node.id),
      "aria-label": label(node),
      "data-key": `box ${node.id}`,
      on: {
        click: select,
        keydown: (event) => {
          if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            select();
          }
        },
      },
    },
    svg("title", {}, node.text),
    svg("rect", { width: at.width, height: at.height, rx: node.role === "operator" ? 4 : 10 }),
    svg("text", { class: kind ? "name" : "name only", x: 10, y: 20 }, name),
    kind ? svg("text", { class: "kind", x: at.width - 10, y: 20, "text-anchor": "end" }, kind) : null,
    lines.map(([what, text], number) => svg("text", { class: what, x: 10, y: 20 + LINE * (number + 1) }, cut(text, 30))),
  );
}

function curve(points) {
  const [first, ...rest] = points;
  let path = `M${first[0]} ${first[1]}`;
  let [x, y] = first;
  for (const [nextX, nextY] of rest) {
    const bend = (nextX - x) / 2;
    path += y === nextY ? ` L${nextX} ${nextY}` : ` C${x + bend} ${y} ${nextX - bend} ${nextY} ${nextX} ${nextY}`;
    [x, y] = [nextX, nextY];
  }
  return path;
}

function wire({ edge, points }) {
  const [endX, endY] = points.at(-1);
  const [startX, startY] = points[0];
  const [nextX, nextY] = points[1];
  return svg(
    "g",
    { class: edge.tag ? "wire side" : "wire", "aria-hidden": "true" },
    svg("path", { d: curve(points), fill: "none" }),
    svg("path", { class: "tip", d: `M${endX} ${endY} l-7 -4 v8 z` }),
    edge.tag ? svg("text", { x: (startX + nextX) / 2, y: (startY + nextY) / 2 - 5, "text-anchor": "middle" }, cut(edge.tag, 12)) : null,
  );
}

/**
 * Return the drawing of a graph for a place of some width.
 * `chosen` is the id of the selected node; `choose` is called with the id of the node that a click or a key selects.
 */
export function drawGraph(graph, { chosen, choose, width }) {
  if (!graph.nodes.length) return el("p", { class: "quiet" }, graph.note || "The graph is not known.");
  const placed = place(graph.nodes, graph.edges, (node) => 30 + LINE * linesOf(node).length);
  const [wide, high] = [placed.width + 2 * MARGIN, placed.height + 2 * MARGIN];
  const scale = Math.min(1, Math.max(LEAST_SCALE, width / wide));
  const drawing = svg(
    "svg",
    {
      class: scale > LEAST_SCALE ? "graph fits" : "graph",
      viewBox: `${-MARGIN} ${-MARGIN} ${wide} ${high}`,
      width: Math.round(wide * scale),
      height: Math.round(high * scale),
      role: "group",
      "aria-label": "Operators and the rows between them",
    },
    placed.wires.map(wire),
    graph.nodes.map((node) => box(node, placed.boxes.get(node.id), chosen, choose)),
  );
  return [
    graph.note ? el("p", { class: "quiet" }, graph.note) : null,
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Graph", "data-key": "scroll graph" }, drawing),
  ];
}

/** Return what is known of a selected node. */
export function describeNode(node) {
  const facts = [
    ["does", node.text],
    ["time", node.role === "source" ? node.detail : ""],
    ["guarantee", node.role === "output" ? node.detail : ""],
    ["rows", node.description],
    ["watermark", node.role === "source" || node.role === "operator" ? instant(node.watermark) : ""],
    ["held by", node.held_by],
    ["newest epochs", `${count(node.rows_in)} rows in, ${count(node.rows_out)} out, ${count(node.late)} late`],
  ];
  if (node.state) {
    facts.push(["state", `${count(node.state.rows)} rows, ${bytes(node.state.bytes)} in ${count(node.state.files)} files`]);
    if (node.state.keys !== null) facts.push(["keys", `${count(node.state.keys)}, ${count(node.state.timers)} timers`]);
    if (node.state.oldest_open_window !== null) facts.push(["oldest open window", instant(node.state.oldest_open_window)]);
  }
  return [
    el("h3", {}, `${node.kind} ${node.name}`),
    el("dl", { class: "facts" }, facts.filter(([, text]) => text).map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])),
  ];
}
