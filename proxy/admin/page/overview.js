// The parts that each snapshot redraws: figures, targets, dead letters, shards.

import { pause, resume, switchIngest } from "./actions.js";
import { byId, make, number, some, table } from "./elements.js";
import { counted } from "./instances.js";
import { showReason } from "./letters.js";
import { share } from "./picture.js";
import { length } from "./time.js";

const STATES = {
  recovering: "recovering: rebuilds its local data",
  "catching-up": "catching up: reads the records written meanwhile",
  running: "running",
  held: "held: the clock of this machine is wrong, or behind earlier deliveries. See the alert DelayProxyShardHeld",
  unreadable: "unreadable: a record batch of the ingress cannot be read, and later records are not read. See the alert DelayProxyShardUnreadable",
  full: "full: a limit of the setting admission is reached, and no new records are read",
};
let before = null;
const drawn = {};

// Draw a part only if it has changed, so that the focus stays.
function draw(id, key, makeParts) {
  const text = JSON.stringify(key);
  if (drawn[id] === text) return;
  const focused = document.activeElement?.dataset?.name;
  drawn[id] = text;
  byId(id).replaceChildren(...makeParts());
  if (focused) [...byId(id).querySelectorAll("[data-name]")]
    .find((one) => one.tagName === "BUTTON" && one.dataset.name === focused)?.focus();
}

export function show(now) {
  if (before && counted(before) !== counted(now)) before = null;
  const seconds = before ? Math.max(0.5, (now.now - before.now) / 1000) : 1;
  const rate = (target) => before
    ? Math.max(0, (now.delivered[target] ?? 0) - (before.delivered[target] ?? 0)) / seconds : 0;
  figures(now, rate);
  targets(now, rate);
  paused(now.paused);
  ingest(now.ingest_paused);
  deadLetters(now.dead_letters);
  shards(now);
  before = now;
}

function figures(now, rate) {
  const all = Object.keys(now.delivered).reduce((sum, target) => sum + rate(target), 0);
  const putOff = Object.values(now.refused).reduce((sum, one) => sum + one.records, 0);
  const late = (now.by_time?.overdue ?? 0) + putOff;
  const facts = [
    ["Pending", number(now.pending), false],
    ["Overdue", now.by_time ? number(late) : "–", late > 0],
    ["Oldest overdue by", length(now.lag_s), now.lag_s > 1],
    ["Delivered per second", number(all), false],
  ];
  draw("facts", facts, () => facts.map(([name, value, isLate]) =>
    make("div", {}, make("dt", {}, name), make("dd", { class: isLate ? "late" : "" }, value))));
}

function targets(now, rate) {
  const names = [...new Set([...Object.keys(now.by_target), ...Object.keys(now.delivered)])]
    .filter((name) => now.by_target[name] || now.delivered[name]);
  const rows = names.map((name) => {
    const count = now.delivered[name] ?? 0;
    const mean = count ? length(now.lateness_sum_s[name] / count) : "–";
    return [name, now.by_target[name] ?? 0, rate(name), mean];
  });
  const columns = [["Target", false], ["Pending", true], ["Share", false], ["Delivered per second", true],
    ["Mean lateness", true], ["Action", false]];
  draw("targets", [rows, now.pending, now.others, now.paused, now.held_targets, now.refused], () => [
    rows.length ? table("Targets", columns, rows.map(([name, pending, perSecond, mean]) => [
      heading(name, now.held_targets.includes(name), now.refused[name]),
      number(pending), share(pending, now.pending), number(perSecond), mean,
      action(name, now.paused),
    ])) : make("p", { class: "quiet" }, "No pending records, and no deliveries since the process started."),
    ...(now.others ? [make("p", { class: "quiet" }, `Other targets have ${some(now.others, "pending record")}.`)] : []),
  ]);
}

function heading(name, isHeld, refused) {
  const notes = [
    ...(isHeld ? ["paused"] : []),
    ...(refused ? [`The target refuses ${some(refused.records, "record")}, which the proxy tries again: ${refused.why}`] : []),
  ];
  return notes.length
    ? make("span", {}, name, ...notes.flatMap((note) =>
      [make("br"), make("span", { class: "quiet" }, note)])) : name;
}

function action(target, patterns) {
  if (target === "(other)") return "";
  return patterns.includes(target)
    ? make("button", { type: "button", "data-needs": "operator", "data-name": target, "aria-label": `Resume ${target}`,
      onclick: () => resume(target) }, "Resume…")
    : make("button", { type: "button", "data-needs": "operator", "data-name": target, "aria-label": `Pause ${target}`,
      onclick: () => pause(target) }, "Pause…");
}

function paused(patterns) {
  draw("paused", patterns, () => patterns.map((pattern) => make("p", { class: "row" },
    make("span", {}, "Paused: ", make("code", {}, pattern)),
    make("button", { type: "button", "data-needs": "operator", "aria-label": `Resume pattern ${pattern}`,
      onclick: () => resume(pattern) }, "Resume…"))));
}

function ingest(isPaused) {
  draw("ingest", isPaused, () => [make("p", { class: "row" },
    make("span", {}, isPaused
      ? "The ingest is paused: no new records are read." : "New records are read."),
    make("button", { type: "button", "data-needs": "operator", "data-name": "ingest", onclick: () => switchIngest(isPaused) },
      isPaused ? "Resume the ingest…" : "Pause the ingest…"))]);
}

function deadLetters(byReason) {
  const rows = Object.entries(byReason).sort((one, other) => other[1] - one[1]);
  const columns = [["Reason", false], ["Since the process started", true], ["Action", false]];
  draw("dead", rows, () => [rows.length
    ? table("Dead letters by reason", columns, rows.map(([reason, count]) => [reason, number(count),
      make("button", { type: "button", "data-name": reason,
        "aria-label": `Show dead letters ${reason}`, onclick: () => showReason(reason) }, "Show")]))
    : make("p", { class: "quiet" }, "No dead letters since the process started.")]);
}

function shards(now) {
  const columns = [["Ingress partition", false], ["State", false], ["Pending", true],
    ["Unread", true], ["Undecided half messages", true]];
  draw("shards", now.shards, () => [
    table("Shards", columns, now.shards.map((one) => [
      String(one.partition), STATES[one.state] ?? one.state, number(one.pending),
      number(one.behind), number(one.undecided)])),
    ...(now.shard_count > now.shards.length
      ? [make("p", { class: "quiet" }, `The first ${number(now.shards.length)} of ${number(now.shard_count)} partitions.`)] : []),
  ]);
}
