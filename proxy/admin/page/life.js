// The history of a record as a line of steps, from its first origin to its end.

import { make, number } from "./elements.js";
import { length, moment } from "./time.js";

const NAMES = { ingested: "Written", due: "Due", rolled: "Rewritten before retention deletes it",
  requeued: "Requeued", replaced: "Replaced", cancelled: "Cancelled", "rolled-back": "Rolled back",
  committed: "Committed", delivered: "Delivered", "dead-lettered": "Dead letter", expired: "Expired",
  replayed: "Replayed", pending: "Pending", applied: "Applied", missed: "Missed",
  deleted: "Deleted by retention" };
const BAD = new Set(["dead-lettered", "expired", "missed"]);
const AT_THE_START = 20;
const AT_THE_END = 80;

export function line(trace) {
  const steps = trace.steps.map((step, at) => item(step, trace.steps[at - 1]));
  const left = steps.length - AT_THE_START - AT_THE_END;
  if (left > 0) {
    steps.splice(AT_THE_START, left, make("li", {}, part("p", "quiet", `${number(left)} more steps.`)));
  }
  const last = trace.steps.at(-1);
  if (last.what === "pending" && last.due_ms > last.time_ms) {
    steps.push(make("li", { class: "next" }, part("p", "when", moment(last.due_ms)),
      make("p", {}, part("strong", "", "To be delivered"))));
  }
  return [make("ol", { class: "life", "aria-label": "History of the record" }, ...steps), ...notKnown(trace)];
}

function item(step, before) {
  const after = before?.time_ms != null && step.time_ms !== null ? step.time_ms - before.time_ms : 0;
  const kind = step.what === "pending" ? "now" : BAD.has(step.what) ? "done bad" : "done";
  return make("li", { class: kind },
    make("p", { class: "when" }, kind === "now" ? "now" : moment(step.time_ms), make("br"),
      part("span", "quiet", after >= 1 ? `${length(after / 1000)} later` : "")),
    make("div", {}, make("p", {}, part("strong", "", name(step)),
      ...(place(step) ? [" ", part("code", "", place(step))] : [])),
    part("p", "quiet", says(step))));
}

const part = (element, kind, text) => make(element, kind ? { class: kind } : {}, text);

function name(step) {
  if (step.what === "replaced" && step.detail === "moved to another time") return "Rescheduled";
  return NAMES[step.what] ?? step.what[0].toUpperCase() + step.what.slice(1);
}

const place = (step) => (step.what === "pending" || step.what === "due" ? null : step.where);

function says(step) {
  if (step.what === "delivered") return [late(step.late_ms), step.detail].filter(Boolean).join("; ");
  if (step.what === "rolled") return "";
  if (step.what === "replaced" && name(step) !== NAMES.replaced) return "";
  if (step.due_ms === null) return step.detail;
  if (step.what !== "pending") return `${step.detail}, due ${moment(step.due_ms)}`;
  const wait = (step.due_ms - step.time_ms) / 1000;
  return wait > 0 ? `due in ${length(wait)}` : `overdue by ${length(-wait)}`;
}

const late = (ms) => (ms === null ? "due time unknown" : `${length(ms / 1000)} late`);

function notKnown(trace) {
  if (!trace.unknown.length) return [];
  return [part("p", "quiet", trace.is_whole ? "Unknown:" : "Not completely read:"),
    make("ul", { class: "quiet" }, ...trace.unknown.map((sentence) => make("li", {}, sentence)))];
}
