// One record: its current state, its history from the topics, and its buttons.

import { recall, reschedule } from "./actions.js";
import { call } from "./api.js";
import { content } from "./content.js";
import { byId, make, say, table } from "./elements.js";
import { line } from "./life.js";
import { drawTimes, moment, zone } from "./time.js";

const STATES = { pending: "pending", "half-message": "undecided half message",
  ended: "ended, or rewritten as another record" };
const LONGER = "30s";
let opened = null;

// Open the record. `origin` may also be the place of its delivery or dead letter.
export async function open(origin) {
  opened = origin;
  const path = pathOf(origin);
  const readsContents = document.body.dataset.contents === "true";
  const known = await call("GET", `/records/${path}?body=${readsContents}`).catch((refused) => refused);
  if (opened !== origin) return;
  const record = known instanceof Error ? null : known;
  byId("record").replaceChildren(make("h3", {}, origin), make("div", { id: "record-now" }),
    ...(record ? (readsContents ? [content(record)] : []) : [make("p", { class: "quiet" }, known.message)]),
    make("h4", {}, "History"), make("p", { id: "record-status", class: "quiet", role: "status" }),
    make("div", { id: "record-life" }), make("div", { id: "record-actions" }));
  drawTimes("record", () => byId("record-now").replaceChildren(...(record ? [now(record)] : [])));
  if (record !== null && record.state !== "ended") actions(origin, record.due, record.state === "pending");
  byId("record").hidden = false;
  byId("record").focus();
  await trace(origin, "");
}

const pathOf = (origin) => origin.split("/").map(encodeURIComponent).join("/");

async function trace(origin, query) {
  byId("record-status").textContent = "Reading the topics…";
  const found = await call("GET", `/records/${pathOf(origin)}/trace${query}`).catch((refused) => refused);
  if (opened !== origin) return;
  if (found instanceof Error) {
    byId("record-status").textContent = found.message;
    return;
  }
  const longer = make("button", { type: "button", onclick: () => trace(origin, `?wait=${LONGER}`) },
    "Read for 30 s");
  drawTimes("life", () => {
    if (opened !== origin) return;
    byId("record-status").textContent = `Steps: ${found.steps.length}. Times in ${zone(Date.now())}.`;
    byId("record-life").replaceChildren(...line(found), ...(found.is_whole || query ? [] : [longer]));
  });
  const last = found.steps.at(-1);
  if (found.state === "pending" && !byId("record-actions").hasChildNodes()) {
    actions(last.origin, last.due_ms, true);
  }
}

function now(record) {
  const rows = [["State", STATES[record.state] ?? record.state], ["Id", record.id ?? "none"],
    ...(record.target === null ? [] : [["Target", record.target]]),
    ...(record.due === null ? [] : [["Due", moment(record.due)]])];
  if (record.fires !== null && record.fires !== record.due) {
    rows.push(["Next action", moment(record.fires)]);
  }
  return table("Current state", [["Field", false], ["Value", false]], rows, "short");
}

// Offer the actions of a pending record. Then show its new state.
function actions(origin, due, isDecided) {
  const then = (place) => open(place).catch((refused) => say(refused.message));
  const button = (text, onclick) => make("button", { type: "button", "data-needs": "operator", onclick }, text);
  byId("record-actions").replaceChildren(make("div", { class: "row" },
    ...(isDecided ? [button("Reschedule…", () => reschedule(pathOf(origin), due, then))] : []),
    button("Recall…", () => recall(pathOf(origin), () => then(origin)))));
}
