// One record: what the proxy knows of it now, its life from the topics, and what can be done with it.

import { recall, reschedule } from "./actions.js";
import { call } from "./api.js";
import { content } from "./content.js";
import { byId, make, say, table } from "./elements.js";
import { line } from "./life.js";
import { moment, zone } from "./time.js";

const STATES = { pending: "waits", "half-message": "half message, undecided",
  ended: "ended, or rewritten as another record" };
const LONGER = "30s";
let opened = null;

// `origin`: of an ingress record, or the place of what was made of one.
export async function open(origin) {
  opened = origin;
  const path = pathOf(origin);
  const known = await call("GET", `/records/${path}?body=true`).catch((refused) => refused);
  if (opened !== origin) return;
  const record = known instanceof Error ? null : known;
  byId("record").replaceChildren(make("h3", {}, origin),
    ...(record ? [now(record), content(record)] : [make("p", { class: "quiet" }, known.message)]),
    make("h4", {}, "Its life"), make("p", { id: "record-status", class: "quiet", role: "status" }),
    make("div", { id: "record-life" }), make("div", { id: "record-actions" }));
  if (record !== null && record.state !== "ended") actions(origin, record.due, record.state === "pending");
  byId("record").hidden = false;
  byId("record").focus();
  await trace(origin, "");
}

const pathOf = (origin) => origin.split("/").map(encodeURIComponent).join("/");

async function trace(origin, query) {
  byId("record-status").textContent = "Reading the topics…";
  const told = await call("GET", `/records/${pathOf(origin)}/trace${query}`).catch((refused) => refused);
  if (opened !== origin) return;
  if (told instanceof Error) {
    byId("record-status").textContent = told.message;
    return;
  }
  const longer = make("button", { type: "button", onclick: () => trace(origin, `?wait=${LONGER}`) },
    "Read on for longer");
  byId("record-status").textContent = `Steps: ${told.steps.length}. Times in ${zone(Date.now())}.`;
  byId("record-life").replaceChildren(...line(told), ...(told.is_whole || query ? [] : [longer]));
  const last = told.steps.at(-1);
  if (told.state === "waiting" && !byId("record-actions").hasChildNodes()) {
    actions(last.origin, last.due_ms, true);
  }
}

function now(record) {
  const rows = [["State", STATES[record.state] ?? record.state], ["Id", record.id ?? "without id"],
    ...(record.target === null ? [] : [["Target", record.target]]),
    ...(record.due === null ? [] : [["Due", moment(record.due)]])];
  if (record.fires !== null && record.fires !== record.due) {
    rows.push(["Looked at next", moment(record.fires)]);
  }
  return table("What the proxy knows now", [["What", false], ["Says", false]], rows, "short");
}

// What can be done with a record that waits; then it is shown as it is after that.
function actions(origin, due, isDecided) {
  const then = (place) => open(place).catch((refused) => say(refused.message));
  const button = (text, onclick) => make("button", { type: "button", onclick }, text);
  byId("record-actions").replaceChildren(make("div", { class: "row" },
    ...(isDecided ? [button("Reschedule…", () => reschedule(pathOf(origin), due, then))] : []),
    button("Recall…", () => recall(pathOf(origin), () => then(origin)))));
}
