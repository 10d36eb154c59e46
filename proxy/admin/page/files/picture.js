// What waits over time, as bars; the table below it says the same.

import { byId, drawing, make, number, table } from "./elements.js";
import { moment } from "./time.js";

const STEP_MS = { hour: 300000, day: 3600000, month: 86400000 };
const END = { hour: "in 1 hour", day: "in 24 hours", month: "in 30 days" };
const NOTE = "By the time at which the proxy looks at them next: what is due far ahead is written " +
  "again on the way, and stands at that time.";
let scale = "hour";
let newest = null;

export function listen() {
  for (const button of document.querySelectorAll("[data-scale]")) {
    button.addEventListener("click", () => {
      scale = button.dataset.scale;
      for (const one of document.querySelectorAll("[data-scale]")) {
        one.setAttribute("aria-pressed", String(one === button));
      }
      draw();
    });
  }
}

export function show(byTime) {
  newest = byTime;
  draw();
}

function draw() {
  if (newest === null) {
    byId("picture").replaceChildren("Not known now: a worker starts or recovers.");
    byId("picture-table").replaceChildren();
    byId("picture-note").textContent = "";
    return;
  }
  const counts = newest[scale];
  const total = counts.reduce((sum, count) => sum + count, 0);
  const most = Math.max(1, ...counts);
  const title = `About ${number(total)} records fire ${END[scale].replace("in", "within")}; ` +
    `at most ${number(most === 1 ? Math.max(...counts) : most)} in one bar.`;
  const bars = counts.map((count, at) => {
    const height = count === 0 ? 0 : Math.max(1.5, (100 * count) / most);
    return drawing("rect", { x: at * 10 + 1, y: 100 - height, width: 8, height });
  });
  const svg = drawing("svg", { viewBox: `0 0 ${counts.length * 10} 100`,
    preserveAspectRatio: "none", role: "img", "aria-label": title }, ...bars);
  const ticks = make("div", { class: "ticks", "aria-hidden": "true" },
    make("span", {}, "now"), make("span", {}, END[scale]));
  byId("picture").replaceChildren(make("p", { class: "quiet" }, title), svg, ticks);
  byId("picture-note").textContent = [held(newest.held), cancelled(newest.cancelled), NOTE].join("");
  const rows = counts.map((count, at) => {
    const from = newest.from + at * STEP_MS[scale];
    return [moment(from), number(count)];
  });
  byId("picture-table").replaceChildren(
    table("What waits over time", [["From", false], ["Records", true]], rows, "plain"));
}

const held = (count) => (count ? `${number(count)} are held by a pause: they wait until it ends, ` +
  "at whatever time they stand here. " : "");
const cancelled = (count) => (count ? `${number(count)} were cancelled or replaced: they count here ` +
  "until their time. " : "");

export function share(part, whole) {
  return drawing("svg", { class: "share", viewBox: "0 0 100 4", preserveAspectRatio: "none",
    "aria-hidden": "true" },
  drawing("rect", { class: "share-ground", width: 100, height: 4 }),
  drawing("rect", { width: whole ? (100 * part) / whole : 0, height: 4 }));
}
