// The parts that each snapshot draws anew: figures, targets, dead letters, shards.

import { pause, resume, switchIngest } from "./actions.js";
import { byId, make, number, table } from "./elements.js";
import { showReason } from "./letters.js";
import { share } from "./picture.js";
import { length } from "./time.js";

const STATES = {
  recovering: "recovering: rebuilds what waits",
  "catching-up": "catching up: reads what was written meanwhile",
  running: "running",
  held: "held: its clock is wrong, or behind what was delivered",
  unreadable: "unreadable: a record batch of the ingress cannot be read, nothing behind it is taken in",
  full: "full: as much waits as the settings allow, nothing more is read",
};
let before = null;
const drawn = {};

// Drawn only where something has changed, so that the focus stays where it is.
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
    ["Waiting", number(now.pending), false],
    ["Overdue", now.by_time ? number(late) : "–", late > 0],
    ["Oldest late by", length(now.lag_s), now.lag_s > 1],
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
  const columns = [["Target", false], ["Waiting", true], ["Share", false], ["Per second", true],
    ["Mean lateness", true], ["Action", false]];
  draw("targets", [rows, now.pending, now.others, now.paused, now.held_targets, now.refused], () => [
    rows.length ? table("Targets", columns, rows.map(([name, waiting, perSecond, mean]) => [
      heading(name, now.held_targets.includes(name), now.refused[name]), number(waiting), share(waiting, now.pending), number(perSecond), mean,
      action(name, now.paused),
    ])) : make("p", { class: "quiet" }, "Nothing waits, and nothing was delivered yet."),
    ...(now.others ? [make("p", { class: "quiet" }, `${number(now.others)} for other targets.`)] : []),
  ]);
}

function heading(name, isHeld, refused) {
  const notes = [
    ...(isHeld ? ["held by a pause"] : []),
    ...(refused ? [`${number(refused.records)} wait for a retry because ${refused.why}`] : []),
  ];
  return notes.length
    ? make("span", {}, name, ...notes.flatMap((note) =>
      [make("br"), make("span", { class: "quiet" }, note)])) : name;
}

function action(target, patterns) {
  if (target === "(other)") return "";
  return patterns.includes(target)
    ? make("button", { type: "button", "data-name": target, "aria-label": `Resume ${target}`,
      onclick: () => resume(target) }, "Resume…")
    : make("button", { type: "button", "data-name": target, "aria-label": `Pause ${target}`,
      onclick: () => pause(target) }, "Pause…");
}

function paused(patterns) {
  draw("paused", patterns, () => patterns.map((pattern) => make("p", { class: "row" },
    make("span", {}, "Paused: ", make("code", {}, pattern)),
    make("button", { type: "button", "aria-label": `Resume pattern ${pattern}`,
      onclick: () => resume(pattern) }, "Resume…"))));
}

function ingest(isPaused) {
  draw("ingest", isPaused, () => [make("p", { class: "row" },
    make("span", {}, isPaused
      ? "Taking in is paused: nothing more is read of the ingress." : "New records are taken in."),
    make("button", { type: "button", "data-name": "ingest", onclick: () => switchIngest(isPaused) },
      isPaused ? "Take in again…" : "Stop taking in…"))]);
}

function deadLetters(byReason) {
  const rows = Object.entries(byReason).sort((one, other) => other[1] - one[1]);
  const columns = [["Reason", false], ["Since the start", true], ["Letters", false]];
  draw("dead", rows, () => [rows.length
    ? table("Dead letters by reason", columns, rows.map(([reason, count]) => [reason, number(count),
      make("button", { type: "button", "data-name": reason,
        "aria-label": `Show dead letters ${reason}`, onclick: () => showReason(reason) }, "Show")]))
    : make("p", { class: "quiet" }, "None since this process has started.")]);
}

function shards(now) {
  const columns = [["Partition", false], ["State", false], ["Waiting", true],
    ["Still to read", true], ["Undecided", true]];
  draw("shards", now.shards, () => [
    table("Shards", columns, now.shards.map((one) => [
      String(one.partition), STATES[one.state] ?? one.state, number(one.pending),
      number(one.behind), number(one.undecided)])),
    ...(now.shard_count > now.shards.length
      ? [make("p", { class: "quiet" }, `The first of ${number(now.shard_count)}.`)] : []),
  ]);
}
