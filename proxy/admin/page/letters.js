// Dead letters: the list, one letter, and the request for a replay.

import { call } from "./api.js";
import { content } from "./content.js";
import { byId, given, givenTime, make, number, say, table } from "./elements.js";
import { exports, utc } from "./export.js";
import { replay } from "./replay.js";
import { drawTimes, moment } from "./time.js";

const SHOWN = 50;
const MOST_ROWS = 500;
const AT_ONCE = 1000;
const EXPORTED = [["written", (one) => utc(one.written)], ["replayed", (one) => utc(one.replayed?.at)],
  ...["reason", "detail", "target", "origin", "first_origin", "partition", "offset", "key", "bytes"].map((name) => [name, (one) => one[name]])];

export function listen() {
  byId("letters").addEventListener("submit", (event) => {
    event.preventDefault();
    find().catch((refused) => byId("letters-found").replaceChildren(make("p", {}, refused.message)));
  });
  byId("replay").addEventListener("click", () => replay({ ...chosen(), ...edits() }, find));
}

// Load the topics. The chosen topic stays chosen.
export async function loadTopics() {
  const select = byId("letters-topic");
  const { topics } = await call("GET", "/dead-letters/topics");
  const before = select.value;
  select.replaceChildren(...topics.map((one) => make("option", { value: one.topic },
    one.group === null ? `The proxy: ${one.topic}` : `Group ${one.group}: ${one.topic}`)));
  if (topics.some((one) => one.topic === before)) select.value = before;
}

export async function showReason(reason) {
  const select = byId("letters-topic");
  if (select.options.length) select.selectedIndex = 0;
  byId("letters-reason").value = reason;
  byId("letters").requestSubmit();
}

// Return the filters in the form of a replay's body.
function chosen() {
  const [since, until] = [givenTime("letters-since"), givenTime("letters-until")];
  return {
    topic: given("letters-topic"),
    ...(given("letters-reason") ? { reasons: [given("letters-reason")] } : {}),
    ...(given("letters-target") ? { targets: [given("letters-target")] } : {}),
    ...(since === null ? {} : { since }), ...(until === null ? {} : { until }),
  };
}

function edits() {
  const [name, ...rest] = given("letters-set").split("=");
  return {
    ...(name ? { set: { [name]: rest.join("=") } } : {}),
    ...(given("letters-unset") ? { unset: [given("letters-unset")] } : {}),
  };
}

async function find() {
  byId("letter").hidden = true;
  await loadTopics();
  await more(chosen(), "", []);
}

async function read(filters, limit, cursor) {
  const { topic, reasons, targets, ...times } = filters;
  const asked = new URLSearchParams({ topic, limit, ...times });
  if (reasons) asked.set("reason", reasons[0]);
  if (targets) asked.set("target", targets[0]);
  if (cursor) asked.set("cursor", cursor);
  return call("GET", `/dead-letters?${asked}`);
}

async function readAll(filters, cursor) {
  const page = await read(filters, AT_ONCE, cursor);
  return [page.letters, page.cursor];
}

async function more(filters, cursor, before) {
  const page = await read(filters, SHOWN, cursor);
  drawTimes("letters", () => list(filters, [...before, ...page.letters].slice(-MOST_ROWS), page));
}

function list(filters, letters, page) {
  const columns = [["Reason", false], ["Target", false], ["Written", false], ["Key", false],
    ["Replayed", false], ["Action", false]];
  const rows = letters.map((one) => {
    const place = `${one.partition}/${one.offset}`;
    return [one.reason ?? "not written by the proxy", one.target ?? "–", moment(one.written), one.key ?? "–",
      one.replayed ? moment(one.replayed.at) : page.replays_known ? "no" : "unknown",
      make("button", { type: "button", "data-needs": "contents", "aria-label": `Open dead letter ${place}`,
        onclick: () => open(filters.topic, place).catch((refused) => say(refused.message)) }, "Open")];
  });
  const told = rows.length ? `${number(rows.length)} shown, newest first.`
    : page.cursor ? "None found so far. There are more letters to search." : "No dead letters found.";
  byId("letters-found").replaceChildren(
    make("p", { class: "quiet" }, told),
    ...(rows.length ? [table("Dead letters found", columns, rows)] : []),
    ...(page.cursor ? [make("button", { type: "button", onclick: () =>
      more(filters, page.cursor, letters).catch((refused) => say(refused.message)) }, "Show more")] : []),
    ...(rows.length ? [exports("dead letters", filters, EXPORTED, (from) => readAll(filters, from))] : []));
}

async function open(topic, place) {
  const letter = await call("GET", `/dead-letters/${encodeURIComponent(topic)}/${place}`);
  drawTimes("letter", () => draw(topic, place, letter));
  byId("letter").hidden = false;
  byId("letter").focus();
}

function draw(topic, place, letter) {
  const replayed = letter.replayed ? `${moment(letter.replayed.at)} as ${letter.replayed.as}` : "no";
  const rows = [["Reason", letter.reason === null ? "none, because the proxy did not write it"
    : `${letter.reason}: ${letter.meaning}`],
  ["Detail", letter.detail ?? "–"], ["What to do", letter.remedy ?? "–"],
  ["Origin", letter.origin ?? "–"],
  ...(letter.first_origin ? [["First origin", letter.first_origin]] : []),
  ["Written", moment(letter.written)], ["Replayed", replayed]];
  byId("letter").replaceChildren(
    make("h3", {}, `Dead letter ${place} of ${topic}`),
    table("The dead letter", [["Field", false], ["Value", false]], rows, "short"),
    content(letter),
    make("div", { class: "row" }, make("button", { type: "button", "data-needs": "operator", "aria-label": `Replay ${place}`,
      onclick: () => replay({ topic, places: [place], ...edits() }, find) }, "Replay…")));
}
