// Times and durations as text, in the chosen time zone. The browser keeps the choice.

import { keep, kept } from "./kept.js";

const KEY = "time-zone";
const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const DAY_MS = 86400000;
const DAY_S = 86400;
const UNITS = [[2 * DAY_S, DAY_S, "days"], [7200, 3600, "h"], [120, 60, "min"]];
const drawn = new Map();
let chosen = HERE;
use(kept("localStorage", KEY) ?? HERE);

// Use a zone. A kept name that this browser does not know is ignored.
function use(name) {
  try {
    Intl.DateTimeFormat("en", { timeZone: name });
    chosen = name;
  } catch { /* the zone stays as it was */ }
}

// Fill the list of zones. A choice redraws all times on the page.
export function listen(select) {
  const names = [...new Set([HERE, "UTC", chosen, ...(Intl.supportedValuesOf?.("timeZone") ?? [])])];
  select.replaceChildren(...names.map((name) =>
    new Option(name === HERE ? `${name} (this browser)` : name, name, false, name === chosen)));
  select.addEventListener("change", () => {
    use(select.value);
    keep("localStorage", KEY, chosen);
    for (const draw of drawn.values()) draw();
  });
}

// Draw a part of the page now, and again when another zone is chosen.
export function drawTimes(id, draw) {
  drawn.set(id, draw);
  draw();
}

export const moment = (ms) => (ms === null ? "unknown" : new Date(ms).toLocaleString(undefined, { timeZone: chosen }));

export function length(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  const [, unit, name] = UNITS.find(([from]) => seconds >= from) ?? [0, 1, "s"];
  const rounded = Math.round((10 * seconds) / unit) / 10;
  return `${rounded.toLocaleString("en")} ${name}`;
}

// Return the distance of the zone from UTC at a time, in ms.
function distance(ms) {
  const parts = new Intl.DateTimeFormat("en", { timeZone: chosen, timeZoneName: "longOffset" }).formatToParts(ms);
  const name = parts.find((one) => one.type === "timeZoneName").value;
  const [, sign, ...numbers] = /GMT(?:([+-])(\d+):(\d+)(?::(\d+))?)?/.exec(name);
  const [hours, minutes, seconds] = numbers.map((one) => Number(one ?? 0));
  return (sign === "-" ? -1000 : 1000) * (3600 * hours + 60 * minutes + seconds);
}

// Return the zone, with its distance from UTC at that time.
export function zone(ms) {
  const minutes = distance(ms) / 60000;
  const pad = (value) => String(Math.floor(value)).padStart(2, "0");
  const from = `${minutes < 0 ? "−" : "+"}${pad(Math.abs(minutes) / 60)}:${pad(Math.abs(minutes) % 60)}`;
  return chosen === "UTC" ? "UTC" : `${chosen}, UTC${from}`;
}

// Return a time in the form of a datetime-local field.
export const asTyped = (ms) => new Date(ms + distance(ms)).toISOString().slice(0, 19);

// Return the time of a datetime-local field in ms. Like `new Date`, take the first of two times with the same
// name, and move a time that the zone skips forward.
export function typedTime(typed) {
  const utc = Date.parse(`${typed}Z`);
  if (Number.isNaN(utc)) return NaN;
  const [before, after] = [utc - DAY_MS, utc + DAY_MS].map((ms) => utc - distance(ms));
  return [before, after].find((ms) => ms + distance(ms) === utc) ?? before;
}

// Explain the text of a datetime-local field.
export function understood(typed) {
  const ms = typedTime(typed);
  if (Number.isNaN(ms)) return "Enter a date and a time.";
  const utc = new Date(ms).toISOString().replace(".000Z", "Z");
  const wait = (ms - Date.now()) / 1000;
  return `${moment(ms)} in ${zone(ms)}, which is ${utc}: ` +
    (wait > 0 ? `in ${length(wait)}.` : "this time has passed, so the record is delivered at once.");
}
