// Finding records.

import { purge } from "./actions.js";
import { call } from "./api.js";
import { byId, given, givenTime, make, number, say, table } from "./elements.js";
import { open } from "./record.js";
import { moment } from "./time.js";

const WHY = { scheduled: "scheduled", overdue: "overdue, next to be delivered", paused: "target is paused",
  "rate-limited": "in the queue of a rate limit", requeued: "requeued after a failed publish attempt",
  undecided: "undecided half message", unread: "content is only in the ingress",
  pending: "pending", "half-message": "undecided half message", ended: "ended" };
const SHOWN = 50;

function range() {
  const [from, to] = [givenTime("find-from"), givenTime("find-to")];
  return { ...(from === null ? {} : { due_from: from }), ...(to === null ? {} : { due_to: to }) };
}

export function listen() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    find().catch((refused) => byId("found").replaceChildren(make("p", {}, refused.message)));
  });
  byId("purge").addEventListener("click", () => purge(given("find-target"), range()));
}

async function find() {
  byId("record").hidden = true;
  if (given("find-origin")) {
    byId("found").replaceChildren();
    await open(given("find-origin"));
  } else if (given("find-id")) {
    list((await call("GET", `/records?id=${encodeURIComponent(given("find-id"))}`)).records, null);
  } else {
    await more("", []);
  }
}

async function more(cursor, before) {
  const asked = new URLSearchParams({ limit: SHOWN, ...range() });
  if (given("find-target")) asked.set("target", given("find-target"));
  if (cursor) asked.set("cursor", cursor);
  const page = await call("GET", `/pending/records?${asked}`);
  list([...before, ...page.records].slice(-500), page.cursor);
}

function list(records, cursor) {
  const columns = [["Id", false], ["Target", false], ["Due", false], ["State", false], ["Action", false]];
  const rows = records.map((one) => [one.id ?? "no id", one.target ?? "–", moment(one.due),
    WHY[one.why ?? one.state] ?? "–",
    make("button", { type: "button", "aria-label": `Open ${one.origin}`,
      onclick: () => open(one.origin).catch((refused) => say(refused.message)) }, "Open")]);
  byId("found").replaceChildren(
    make("p", { class: "quiet" }, rows.length ? `${number(rows.length)} shown.` : "No pending records found."),
    ...(rows.length ? [table("Records found", columns, rows)] : []),
    ...(cursor ? [make("button", { type: "button",
      onclick: () => more(cursor, records).catch((refused) => say(refused.message)) }, "Show more")] : []));
}
