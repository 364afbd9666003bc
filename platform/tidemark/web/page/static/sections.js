// The parts of a job's page besides its drawings.

import { el, table } from "./dom.js";
import { bytes, count, duration, instant, percent, rate, short, UNKNOWN } from "./format.js";

const number = (text) => ({ text, number: true });

/** Return an instant with how long ago it is, which `tick` keeps up to date. */
export function ago(at, before = "", after = " ago") {
  if (at === null || at === undefined) return UNKNOWN;
  return el("time", { datetime: instant(at), title: instant(at), "data-at": at, "data-before": before, "data-after": after }, instant(at));
}

/** Write the age of each instant below a place. `now` is the server's time. */
export function tick(place, now) {
  for (const element of place.querySelectorAll("time[data-at]")) {
    const age = Math.max(0, now - Number(element.dataset.at));
    element.textContent = `${element.dataset.before}${duration(Math.floor(age / 1000) * 1000)}${element.dataset.after}`;
  }
}

/** Return a backlog in its source's own unit. */
function backlog(waiting) {
  if (!waiting) return UNKNOWN;
  if (waiting.files !== null) return `${count(waiting.files)} files`;
  if (waiting.rows !== null) return `${short(waiting.rows)} rows`;
  return waiting.bytes !== null ? bytes(waiting.bytes) : UNKNOWN;
}

export function head({ job, state, health, tone, since, description, driver, generation, reason, advice, warning, error, problems }) {
  const process = driver.pid ?? driver.application;
  const facts = [
    since === null ? null : ["since", ago(since, "", "")],
    driver.heartbeat_at === null ? null : ["heartbeat", ago(driver.heartbeat_at)],
    process === null ? null : ["driver", `attempt ${driver.attempt}: ${process} on ${driver.host}`],
    driver.starting ? ["starting", driver.starting] : null,
    driver.restarts ? ["restarts", count(driver.restarts)] : null,
    driver.standby ? ["standby", driver.standby] : null,
    generation ? ["generation", `${generation.number}: ${generation.code}${generation.version ? ` ${generation.version}` : ""}`] : null,
    generation?.fork_of ? ["fork of", `${generation.fork_of.job}, from ${generation.fork_of.savepoint}`] : null,
    generation?.upgrade ? ["upgrade", generation.upgrade.text] : null,
  ].filter(Boolean);
  const notes = [
    ["reason", reason, tone],
    ["last error", error ? error.message : "", "bad"],
    ["to do", advice, "warn"],
    ["upgrade blocked", generation?.upgrade?.trouble ?? "", "bad"],
    ["warning", warning, "warn"],
    ...problems.map((text) => ["cannot be read", text, "bad"]),
  ].filter(([, text]) => text);
  return [
    el("div", { class: "title" }, el("h1", {}, job), el("span", { class: "pill", "data-tone": tone, id: "state" }, health === state || health === "ok" ? state : `${state}, ${health}`)),
    description ? el("p", { class: "description" }, description) : null,
    el("dl", { class: "inline" }, facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
    notes.map(([name, text, colour]) => el("p", { class: "note", "data-tone": colour }, el("b", {}, `${name}: `), text)),
  ];
}

function tile(name, value, more, tone) {
  return el("div", { class: "tile", "data-tone": tone }, el("dt", {}, name), el("dd", {}, el("b", { id: `tile-${name.replaceAll(" ", "-")}` }, value), el("span", {}, more)));
}

export function tiles({ lag_ms, watermark, rows, state_size, epoch, pressure }) {
  const waiting = [pressure.files === null ? "" : `${count(pressure.files)} files`, pressure.rows === null ? "" : `${short(pressure.rows)} rows`, pressure.bytes === null ? "" : bytes(pressure.bytes)].filter(Boolean);
  return el(
    "dl",
    { class: "tiles" },
    tile("lag", duration(lag_ms), `watermark ${instant(watermark)}`),
    tile("rows", rate(rows.per_second), `out ${rate(rows.out_per_second)}; ${short(rows.read)} read in all`),
    tile("epoch", epoch.number === null ? UNKNOWN : String(epoch.number), epoch.at === null ? "none yet" : [ago(epoch.at), `, took ${duration(epoch.took_ms)}`]),
    tile("busy", percent(pressure.busy_share), pressure.epoch_ms === null ? "" : `${duration(pressure.epoch_ms)} of ${duration(pressure.trigger_ms)}`, pressure.busy_share >= 0.9 ? "warn" : null),
    tile("waiting", waiting[0] ?? UNKNOWN, [...waiting.slice(1), pressure.catch_up_ms === null ? "" : `caught up in ${duration(pressure.catch_up_ms)}`].filter(Boolean).join(", ")),
    tile("late", count(rows.late), `in all, each operator that found a row late counts it; ${count(rows.rejected)} rejected, ${count(rows.malformed)} malformed`, rows.late || rows.malformed ? "warn" : null),
    tile("state", bytes(state_size.bytes), `${short(state_size.rows)} rows in ${count(state_size.files)} files`),
  );
}

export function sources(found) {
  const rows = found.flatMap((source) => [
    {
      cells: [el("b", {}, source.name), instant(source.watermark), duration(source.lag_ms), short(source.rows), backlog(source.waiting), source.held_by ? `by ${source.held_by}` : ""],
      key: `source ${source.name}`,
    },
    ...source.splits.map((split) => ({
      cells: [el("span", { class: "split" }, split.name), instant(split.watermark), duration(split.lag_ms), short(split.rows), split.waiting_rows === null ? UNKNOWN : `${short(split.waiting_rows)} rows`, split.idle ? "idle" : split.holds ? "holds it" : ""],
      tone: split.idle ? "off" : split.holds ? "warn" : null,
      key: `split ${source.name} ${split.name}`,
    })),
  ]);
  return table("Sources and splits", ["source, split", "watermark", number("lag"), number("rows"), number("waiting"), "held"], rows, "No epoch has read a source yet.");
}

function meter(name, share, text) {
  return el("div", { class: "meter" }, el("span", {}, name), el("meter", { min: 0, max: 1, low: 0.75, high: 0.9, optimum: 0, value: share ?? 0, "aria-label": `${name}: ${text}` }), el("b", {}, text));
}

export function pressure(found) {
  const facts = [
    ["trigger", duration(found.trigger_ms)],
    ["mean epoch", duration(found.epoch_ms)],
    ["current epoch", found.busy_since === null ? "none" : ago(found.busy_since, "runs for ", "")],
    ["last poll for input", ago(found.polled_at)],
    ["backlog", [found.files === null ? "" : `${count(found.files)} files`, found.rows === null ? "" : `${count(found.rows)} rows`, found.bytes === null ? "" : bytes(found.bytes)].filter(Boolean).join(", ") || UNKNOWN],
    ["caught up in", duration(found.catch_up_ms)],
  ];
  const intake = found.adaptive ? `${percent(found.intake)} of its bound, adapted to the trigger` : `${percent(found.intake)} of its bound`;
  return [
    meter("time in epochs", found.busy_share, percent(found.busy_share)),
    el("p", {}, el("b", {}, "intake "), intake),
    el("dl", { class: "facts" }, facts.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])),
  ];
}

export function refused(found) {
  const rows = found.filter((each) => each.total || each.recent).map((each) => ({
    cells: [el("b", {}, each.name), each.role, each.reason, count(each.total), count(each.recent), each.to ? `side output ${each.to}` : "counted only"],
    tone: each.recent && each.is_loss ? "warn" : null,
    key: `refused ${each.role} ${each.name} ${each.reason}`,
  }));
  return table("Rows that were not accepted", ["where", "", "reason", number("in all"), number("newest epochs"), "kept in"], rows, "Every row was accepted.");
}

export function alerts(found) {
  const rows = found.map((each) => ({
    cells: [el("b", {}, each.rule), each.subject, each.severity, each.since === null ? UNKNOWN : ago(each.since, "", ""), each.text],
    tone: each.severity === "error" ? "bad" : each.severity === "warn" ? "warn" : null,
  }));
  return table("Alerts", ["rule", "of", "severity", "since", "text"], rows, "No alert fires, as far as the alert rules have been evaluated.");
}

export function savepoints({ savepoints: found, savepoints_in_all: all }) {
  const rows = found.map((each) => ({
    cells: [el("b", {}, each.name), count(each.epoch), ago(each.taken_at), each.kind, short(each.state_rows), bytes(each.state_bytes), [each.note, each.by ? ` (${each.by})` : ""]],
    key: `savepoint ${each.name}`,
  }));
  const shown = table("Savepoints", ["name", number("epoch"), "taken", "kind", number("state rows"), number("state"), "note"], rows, "No savepoint.");
  return all > found.length ? [shown, el("p", { class: "quiet" }, `${count(all - found.length)} older ones: tidemark savepoint list`)] : shown;
}

export function changes(found) {
  const words = { asked: "generation {}", started: "attempt {} started", failed: "attempt {} failed", upgrade: "upgrade", request: "request" };
  const rows = found.map((each) => ({
    cells: [ago(each.at), el("b", {}, (words[each.kind] ?? each.kind).replace("{}", each.number)), each.by, each.what],
    tone: each.kind === "failed" ? "bad" : null,
  }));
  return table("Changes, starts and failures", ["when", "what", "by", "why"], rows, "None: the job was never submitted.");
}

export function commands(found) {
  return el(
    "ul",
    { class: "commands" },
    found.map(({ what, command }) => {
      const copy = el("button", { type: "button", "data-key": `copy ${what}`, "aria-label": `Copy the command: ${what}` }, "Copy");
      const code = el("code", {}, command);
      copy.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(command);
          copy.textContent = "Copied";
        } catch {
          // Browsers give pages without TLS no clipboard.
          getSelection().selectAllChildren(code);
          copy.textContent = "Selected";
        }
      });
      return el("li", {}, el("span", {}, what), code, copy);
    }),
  );
}
