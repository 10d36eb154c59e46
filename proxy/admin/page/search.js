// Finding records.

import { moveAll, purge } from "./actions.js";
import { call } from "./api.js";
import { byId, given, givenTime, make, number, say, table } from "./elements.js";
import { exports, utc } from "./export.js";
import { open } from "./record.js";
import { drawTimes, moment } from "./time.js";

const WHY = { scheduled: "scheduled", overdue: "overdue, next to be delivered", paused: "target is paused",
  "rate-limited": "in the queue of a rate limit", requeued: "requeued after a failed publish attempt",
  undecided: "undecided half message", unread: "content is only in the ingress",
  pending: "pending", "half-message": "undecided half message", ended: "ended" };
const SHOWN = 50;
const AT_ONCE = 1000;
const EXPORTED = [["id", (one) => one.id], ["target", (one) => one.target], ["due", (one) => utc(one.due)],
  ["fires", (one) => utc(one.fires)], ["state", (one) => one.why ?? one.state], ["origin", (one) => one.origin],
  ["bytes", (one) => one.bytes], ["attempt", (one) => one.attempt], ["reason", (one) => one.reason]];

function range() {
  const [from, to] = [givenTime("find-from"), givenTime("find-to")];
  return { ...(from === null ? {} : { due_from: from }), ...(to === null ? {} : { due_to: to }) };
}

export function listen() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    find().catch((refused) => byId("found").replaceChildren(make("p", {}, refused.message)));
  });
  byId("move").addEventListener("click", () => moveAll(given("find-target"), range(), false));
  byId("fire").addEventListener("click", () => moveAll(given("find-target"), range(), true));
  byId("purge").addEventListener("click", () => purge(given("find-target"), range()));
}

async function find() {
  byId("record").hidden = true;
  if (given("find-origin")) {
    byId("found").replaceChildren();
    await open(given("find-origin"));
  } else if (given("find-id")) {
    const filters = { id: given("find-id") };
    const read = async () => [(await call("GET", `/records?${new URLSearchParams(filters)}`)).records, null];
    list((await read())[0], null, filters, read);
  } else {
    await more(filters(), "", []);
  }
}

const filters = () => ({ ...range(), ...(given("find-target") ? { target: given("find-target") } : {}) });

async function read(filters, limit, cursor) {
  const asked = new URLSearchParams({ ...filters, limit, ...(cursor ? { cursor } : {}) });
  const page = await call("GET", `/pending/records?${asked}`);
  return [page.records, page.cursor];
}

async function more(filters, cursor, before) {
  const [records, next] = await read(filters, SHOWN, cursor);
  list([...before, ...records].slice(-500), next, filters, (from) => read(filters, AT_ONCE, from));
}

const list = (...found) => drawTimes("found", () => draw(...found));

function draw(records, cursor, filters, readAll) {
  const columns = [["Id", false], ["Target", false], ["Due", false], ["State", false], ["Action", false]];
  const rows = records.map((one) => [one.id ?? "no id", one.target ?? "–", moment(one.due),
    WHY[one.why ?? one.state] ?? "–",
    make("button", { type: "button", "aria-label": `Open ${one.origin}`,
      onclick: () => open(one.origin).catch((refused) => say(refused.message)) }, "Open")]);
  byId("found").replaceChildren(
    make("p", { class: "quiet" }, rows.length ? `${number(rows.length)} shown.` : "No pending records found."),
    ...(rows.length ? [table("Records found", columns, rows)] : []),
    ...(cursor ? [make("button", { type: "button",
      onclick: () => more(filters, cursor, records).catch((refused) => say(refused.message)) }, "Show more")] : []),
    ...(rows.length ? [exports("pending records", filters, EXPORTED, readAll)] : []));
}
