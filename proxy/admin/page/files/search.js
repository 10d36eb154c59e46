// Finding records, and the life of one.

import { purge, recall } from "./actions.js";
import { call } from "./api.js";
import { content } from "./content.js";
import { byId, given, givenTime, make, moment, number, say, table } from "./elements.js";

const WHY = { scheduled: "scheduled", overdue: "overdue, next in line", paused: "its target is paused",
  "held-back": "held back", requeued: "requeued after a failure", undecided: "half message, undecided",
  unread: "its body is in the ingress" };
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
  const columns = [["Id", false], ["Target", false], ["Due", false], ["State", false], ["Record", false]];
  const rows = records.map((one) => [one.id ?? "without id", one.target ?? "–", moment(one.due),
    WHY[one.why] ?? one.state ?? "–",
    make("button", { type: "button", "aria-label": `Open ${one.origin}`,
      onclick: () => open(one.origin).catch((refused) => say(refused.message)) }, "Open")]);
  byId("found").replaceChildren(
    make("p", { class: "quiet" }, rows.length ? `${number(rows.length)} shown.` : "Nothing found."),
    ...(rows.length ? [table("Records found", columns, rows)] : []),
    ...(cursor ? [make("button", { type: "button",
      onclick: () => more(cursor, records).catch((refused) => say(refused.message)) }, "Show more")] : []));
}

async function open(origin) {
  const path = origin.split("/").map(encodeURIComponent).join("/");
  const record = await call("GET", `/records/${path}?body=true`);
  const isOver = record.state === "ended";
  byId("record").replaceChildren(
    make("h3", {}, origin), life(record), content(record),
    ...(isOver ? [] : [make("div", { class: "row" },
      make("button", { type: "button", onclick: () => recall(path) }, "Recall…"))]),
    make("p", { class: "quiet" }, "Every step, from the topics:"),
    make("pre", {}, make("code", {}, `kafka-delay-proxy trace ${origin}`)));
  byId("record").hidden = false;
  byId("record").focus();
}

function life(record) {
  const isOver = record.state === "ended";
  const steps = [["Written", origin(record), true],
    [record.state === "half-message" ? "Half message, undecided" : "Waits",
      `for ${record.target ?? "its target"}`, true],
    ["Due", moment(record.due), record.due !== null && record.due <= Date.now()],
    ["Ended", isOver ? "its target or the outcomes topic says how" : "not yet", isOver]];
  if (record.fires !== null && record.fires !== record.due) {
    steps.splice(3, 0, ["Looked at next", moment(record.fires), isOver]);
  }
  return make("ol", { class: "life", "aria-label": "The record's life" },
    ...steps.map(([name, text, isDone]) => make("li", { class: isDone ? "done" : "" },
      make("strong", {}, name), make("br"), make("span", { class: "quiet" }, text))));
}

const origin = (record) => `as ${record.id ?? "a record without id"}`;
