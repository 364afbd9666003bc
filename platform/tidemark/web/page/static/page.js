// The page: the list of jobs, or one job (#name), asked for again every two seconds while somebody looks.

import { get, Refused, token, Unauthorized } from "./api.js";
import { drawEpochs, drawLines } from "./charts.js";
import { el, forget, table, update } from "./dom.js";
import { count, duration, rate, UNKNOWN } from "./format.js";
import { describeNode, drawGraph } from "./graph.js";
import * as sections from "./sections.js";

const EVERY_MS = 2000;
const LONGEST_MS = 15_000;
const BAD_STATES = ["dead", "failed", "damaged"];
const TONES = { ok: "good", starting: "busy", stopped: "off", failing: "warn", unwatched: "warn", hung: "bad", silent: "bad", failed: "bad", damaged: "bad" };

const main = document.getElementById("main");
const crumbs = document.getElementById("crumbs");
const connection = document.getElementById("connection");
const signOut = document.getElementById("sign-out");

let chosen = null; // id of the selected node
let clock = null; // {server, here}: the server's time when this page's monotonic clock was at `here`
let failures = 0;
let timer = 0;
let round = 0; // an answer to an earlier question than the newest is dropped

const jobOfAddress = () => {
  try {
    // Also as the API's addresses are.
    return decodeURIComponent(location.hash.slice(1).replace(/^\/jobs(\/|$)/, ""));
  } catch {
    return "";
  }
};

function frame(kind, build) {
  if (main.dataset.kind === kind) return;
  main.dataset.kind = kind;
  main.replaceChildren(...build());
}

function panel(id, title) {
  return el("section", { class: "panel", "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), el("div", { id }));
}

function showJobs({ jobs }) {
  frame("jobs", () => [el("h1", {}, "Jobs"), el("div", { id: "jobs" })]);
  document.title = "Tidemark";
  const number = (text) => ({ text, number: true });
  const rows = jobs.map((job) => ({
    cells: [
      el("a", { href: `#${encodeURIComponent(job.name)}`, "data-key": `job ${job.name}` }, job.name),
      el("span", { class: "pill", "data-tone": BAD_STATES.includes(job.state) ? "bad" : TONES[job.health] }, job.state),
      job.health,
      job.epoch ?? UNKNOWN,
      rate(job.rows_per_second),
      duration(job.lag_seconds === null ? null : job.lag_seconds * 1000),
      count(job.rows_late),
      job.alerts.map((alert) => `${alert.rule} ${alert.subject}`.trim()).join(", "),
      job.reason,
    ],
  }));
  const columns = ["job", "state", "health", number("epoch"), number("rows"), number("lag"), number("late"), "alerts", "reason"];
  update(document.getElementById("jobs"), jobs, () => table("Jobs", columns, rows, "The store has no jobs."));
}

function buildJob() {
  return [
    el("div", { id: "head" }),
    el("div", { id: "tiles" }),
    el("section", { class: "panel", "aria-labelledby": "graph-title" }, el("h2", { id: "graph-title" }, "Graph"), el("div", { id: "graph" }), el("div", { id: "node", role: "status" })),
    el(
      "div",
      { class: "columns" },
      el(
        "div",
        {},
        el("section", { class: "panel", "aria-labelledby": "epochs-title" }, el("h2", { id: "epochs-title" }, "Epochs, by stage"), el("div", { id: "epochs" }), el("div", { id: "lines", class: "lines" })),
        panel("pressure", "Back-pressure"),
        panel("changes", "Generations, upgrades, starts and failures"),
      ),
      el(
        "div",
        {},
        panel("sources", "Watermarks by split"),
        panel("refused", "Late, rejected and malformed rows"),
        panel("alerts", "Alerts"),
        panel("savepoints", "Savepoints"),
      ),
    ),
    panel("commands", "Commands"),
  ];
}

function showGraph(graph) {
  const place = document.getElementById("graph");
  const choose = (id) => {
    chosen = chosen === id ? null : id;
    showGraph(graph);
  };
  const width = Math.max(600, place.clientWidth);
  update(place, [graph, chosen, width], () => drawGraph(graph, { chosen, choose, width }));
  const node = graph.nodes.find((each) => each.id === chosen);
  update(document.getElementById("node"), node ?? null, () => (node ? describeNode(node) : null));
}

function showJob(page, received) {
  frame(`job ${page.job}`, buildJob);
  document.title = `${page.job}: ${page.state} – Tidemark`;
  clock = { server: page.at, here: received };
  const { head, tiles, sources, pressure, refused, alerts, savepoints, changes, commands } = sections;
  const pick = (...names) => Object.fromEntries(names.map((name) => [name, page[name]]));
  const show = (id, data, render) => update(document.getElementById(id), data, render);
  show("head", pick("job", "state", "health", "tone", "since", "description", "driver", "generation", "reason", "advice", "warning", "error", "problems"), head);
  show("tiles", pick("lag_ms", "watermark", "rows", "state_size", "epoch", "pressure"), tiles);
  showGraph(page.graph);
  show("epochs", pick("epochs", "stages"), drawEpochs);
  show("lines", page.epochs, drawLines);
  show("sources", page.sources, sources);
  show("pressure", page.pressure, pressure);
  show("refused", page.refused, refused);
  show("alerts", page.alerts, alerts);
  show("savepoints", pick("savepoints", "savepoints_in_all"), savepoints);
  show("changes", page.changes, changes);
  show("commands", page.commands, commands);
  tickAges();
}

function tickAges() {
  if (clock) sections.tick(main, clock.server + performance.now() - clock.here);
}

function askForToken(wrong) {
  frame("token", () => {
    const input = el("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
    const form = el(
      "form",
      { class: "token", on: { submit: (event) => {
        event.preventDefault();
        token.set(input.value.trim());
        poll();
      } } },
      el("h1", {}, "A token is needed"),
      el("p", {}, "This server answers only requests with a token. It is kept in this tab, until the tab is closed."),
      el("label", { for: "token" }, "Token"),
      input,
      el("button", { type: "submit" }, "Show the jobs"),
      el("p", { id: "token-wrong", class: "note", "data-tone": "bad", role: "alert", hidden: true }, "The server does not know this token."),
    );
    return [form];
  });
  document.getElementById("token-wrong").hidden = !wrong;
  document.getElementById("token").focus();
}

function say(text, tone) {
  // Said again, it would be read out again.
  if (connection.textContent !== text) connection.textContent = text;
  connection.dataset.tone = tone;
}

/** Show an error; returns whether to ask again. */
function showFailure(error) {
  if (error instanceof Unauthorized) {
    const wrong = token.get() !== null;
    token.forget();
    say("", "off");
    askForToken(wrong);
    return false;
  }
  failures += 1;
  if (error instanceof Refused) {
    say(`the server answers ${error.status}`, "bad");
    frame(`refused ${error.status} ${error.message}`, () => [
      el("h1", {}, error.status === 404 ? `No such job: ${jobOfAddress()}` : "The page cannot be made"),
      el("p", { class: "note", "data-tone": "bad" }, error.message),
      el("p", {}, el("a", { href: "#", "data-key": "back" }, "All jobs")),
    ]);
  } else {
    say("the server does not answer; what is shown is of an earlier time", "bad");
  }
  return true;
}

async function poll() {
  clearTimeout(timer);
  const asked = (round += 1);
  const job = jobOfAddress();
  update(crumbs, job, () => (job ? [el("a", { href: "#", "data-key": "all jobs" }, "Jobs"), " / ", el("span", { "aria-current": "page" }, job)] : []));
  let again = true;
  try {
    const { data, received } = await get(job ? `jobs/${encodeURIComponent(job)}/page` : "jobs");
    if (asked !== round) return;
    failures = 0;
    say("live", "good");
    if (job) showJob(data, received);
    else showJobs(data);
  } catch (error) {
    if (asked !== round) return;
    again = showFailure(error);
  }
  signOut.hidden = token.get() === null;
  if (again && !document.hidden) timer = setTimeout(poll, Math.min(LONGEST_MS, EVERY_MS * 2 ** Math.min(failures, 4)));
}

addEventListener("hashchange", () => {
  chosen = null;
  clock = null;
  poll().then(() => main.focus());
});
addEventListener("resize", () => {
  const place = document.getElementById("graph");
  if (place) forget(place);
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
    say("paused", "off");
  } else {
    poll();
  }
});
signOut.addEventListener("click", () => {
  token.forget();
  poll();
});
setInterval(tickAges, 1000);
poll();
