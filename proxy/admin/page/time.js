// Times and durations as text, in the time zone of this browser.

const DAY_S = 86400;
const UNITS = [[2 * DAY_S, DAY_S, "days"], [7200, 3600, "h"], [120, 60, "min"]];

export const moment = (ms) => (ms === null ? "unknown" : new Date(ms).toLocaleString());

export function length(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  const [, unit, name] = UNITS.find(([from]) => seconds >= from) ?? [0, 1, "s"];
  const rounded = Math.round((10 * seconds) / unit) / 10;
  return `${rounded.toLocaleString("en")} ${name}`;
}

// Return the zone, with its distance from UTC at that time.
export function zone(ms) {
  const minutes = -new Date(ms).getTimezoneOffset();
  const pad = (value) => String(Math.floor(value)).padStart(2, "0");
  const from = `${minutes < 0 ? "−" : "+"}${pad(Math.abs(minutes) / 60)}:${pad(Math.abs(minutes) % 60)}`;
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return name === "UTC" ? "UTC" : `${name}, UTC${from}`;
}

// Return a time in the form of a datetime-local field.
export function asTyped(ms) {
  const shifted = new Date(ms - new Date(ms).getTimezoneOffset() * 60000);
  return shifted.toISOString().slice(0, 19);
}

// Explain the text of a datetime-local field.
export function understood(typed) {
  const ms = new Date(typed).getTime();
  if (Number.isNaN(ms)) return "Enter a date and a time.";
  const utc = new Date(ms).toISOString().replace(".000Z", "Z");
  const wait = (ms - Date.now()) / 1000;
  return `${moment(ms)} in ${zone(ms)}, which is ${utc}: ` +
    (wait > 0 ? `in ${length(wait)}.` : "this time has passed, so the record is delivered at once.");
}
