// Pending records by time, as bars and as a table.

import { call } from "./api.js";
import { byId, drawing, given, make, number, some, table } from "./elements.js";
import { drawTimes, moment } from "./time.js";

const STEP_MS = { hour: 300000, day: 3600000, month: 86400000 };
const BARS = { hour: 12, day: 24, month: 30 };
const END = { hour: "in 1 hour", day: "in 24 hours", month: "in 30 days" };
const NOTE = "Counted by the time at which the proxy next acts on a record. Records due far ahead are " +
  "rewritten earlier, and count at the time of the rewrite. To count by due, enter the target *.";
const COUNTED = "Counted by due, at the time of your request.";
const NOT_ALL = "There are more records than could be counted in time. ";
let scale = "hour";
let newest = null;
let target = "";
let asked = 0;

export function listen() {
  for (const button of document.querySelectorAll("[data-scale]")) {
    button.addEventListener("click", () => {
      scale = button.dataset.scale;
      for (const one of document.querySelectorAll("[data-scale]")) {
        one.setAttribute("aria-pressed", String(one === button));
      }
      drawWanted();
    });
  }
  byId("picture-of").addEventListener("submit", (event) => {
    event.preventDefault();
    target = given("picture-target");
    drawWanted();
  });
}

export function show(byTime) {
  newest = byTime;
  if (!target) drawAll();
}

// Draw all targets with each snapshot, or one target when the user asks for it.
function drawWanted() {
  asked += 1;
  if (!target) {
    drawAll();
  } else {
    drawTarget(asked).catch((refused) => explain(refused.message));
  }
}

async function drawTarget(ticket) {
  explain(`Counting pending records for ${target}…`);
  const minutes = STEP_MS[scale] / 60000;
  const within = Array.from({ length: BARS[scale] }, (_, at) => `${(at + 1) * minutes}m`);
  const said = await call("GET", `/pending/by-time?${new URLSearchParams({ target, within })}`);
  if (ticket !== asked) return;
  const counts = said.buckets.slice(0, -1).map((bucket) => bucket.pending);
  const note = (said.counted_all ? "" : NOT_ALL) + paused(said.paused) + COUNTED;
  draw(counts, said.now, `${recordsIn(counts)} for ${target} are due`, note);
}

function drawAll() {
  if (newest === null) {
    explain("Not available now, because a worker is starting or recovering.");
    return;
  }
  const counts = newest[scale];
  const note = paused(newest.paused) + cancelled(newest.cancelled) + NOTE;
  draw(counts, newest.from, `The proxy acts on about ${recordsIn(counts)}`, note);
}

function explain(text) {
  byId("picture").replaceChildren(text);
  drawTimes("picture", () => byId("picture-table").replaceChildren());
  byId("picture-note").textContent = "";
}

function draw(counts, from, said, note) {
  const most = Math.max(...counts);
  const title = `${said} ${END[scale].replace("in", "within")}; at most ${number(most)} in one bar.`;
  const bars = counts.map((count, at) => {
    const height = count === 0 ? 0 : Math.max(1.5, (100 * count) / most);
    return drawing("rect", { x: at * 10 + 1, y: 100 - height, width: 8, height });
  });
  const svg = drawing("svg", { viewBox: `0 0 ${counts.length * 10} 100`,
    preserveAspectRatio: "none", role: "img", "aria-label": title }, ...bars);
  const ticks = make("div", { class: "ticks", "aria-hidden": "true" },
    make("span", {}, "now"), make("span", {}, END[scale]));
  byId("picture").replaceChildren(make("p", { class: "quiet" }, title), svg, ticks);
  byId("picture-note").textContent = note;
  const starts = counts.map((_, at) => from + at * STEP_MS[scale]);
  drawTimes("picture", () => byId("picture-table").replaceChildren(
    table("Pending records by time", [["From", false], ["Records", true]],
      counts.map((count, at) => [moment(starts[at]), number(count)]), "plain")));
}

const recordsIn = (counts) => some(counts.reduce((sum, count) => sum + count, 0), "record");
const paused = (count) => (count ? `${some(count, "record")} of paused targets are delivered ` +
  "only after a resume, even if their time here is earlier. " : "");
const cancelled = (count) => (count ? `The bars include ${some(count, "record")} that were cancelled or replaced, ` +
  "until the time at which they would fire. " : "");

export function share(part, whole) {
  return drawing("svg", { class: "share", viewBox: "0 0 100 4", preserveAspectRatio: "none",
    "aria-hidden": "true" },
  drawing("rect", { class: "share-ground", width: 100, height: 4 }),
  drawing("rect", { width: whole ? (100 * part) / whole : 0, height: 4 }));
}
