// Lists as files of CSV or JSON.

import { about } from "./about.js";
import { make, say, some } from "./elements.js";

const MOST = 10000;
const WITHIN_MS = 60000;
const FORMULA = /(^|[\t\r\n;])(?=[=+\-@\t\r＝＋－＠])/gu;

// Return rows as CSV. A spreadsheet must not compute a cell, so a text that looks like a formula gets a quote.
// Some spreadsheets split a line at each semicolon, so a formula after a semicolon gets a quote, too.
export function csv(names, rows) {
  return [names, ...rows].map((cells) => `${cells.map(cell).join(",")}\r\n`).join("");
}

function cell(value) {
  const text = typeof value === "string" ? value.replace(FORMULA, "$1'") : String(value ?? "");
  return `"${text.replaceAll('"', '""')}"`;
}

export const utc = (ms) => (ms === null || ms === undefined ? "" : new Date(ms).toISOString());

// Make buttons that export a list. `columns` are [name, function of a row]. `read` takes a cursor and
// returns [rows, next cursor].
export function exports(name, filters, columns, read) {
  return make("div", { class: "row" }, ...[["CSV", "text/csv"], ["JSON", "application/json"]].map(([kind, type]) =>
    make("button", { type: "button", "aria-label": `Export ${name} as ${kind}`, onclick: async (event) => {
      const button = event.target;
      button.disabled = true;
      try {
        const [rows, isCut] = await all(read);
        const text = kind === "CSV" ? csv(columns.map(([heading]) => heading), rows.map((row) => columns.map(([, of]) => of(row))))
          : JSON.stringify({ ...about, list: name, exported: utc(Date.now()), filters, cut: isCut, rows }, null, 1);
        save(fileName(name, isCut ? "-cut" : "", kind.toLowerCase()), text, type);
        say(`Exported ${some(rows.length, "row")}.` + (isCut ? " The list is longer, so the export was cut. Narrow the filter." : ""));
      } catch (refused) {
        say(refused.message);
      }
      button.disabled = false;
    } }, `Export ${kind}`)));
}

async function all(read) {
  const until = Date.now() + WITHIN_MS;
  const rows = [];
  let cursor = "";
  do {
    const [more, next] = await read(cursor);
    rows.push(...more);
    cursor = next;
  } while (cursor && rows.length < MOST && Date.now() < until);
  return [rows.slice(0, MOST), Boolean(cursor) || rows.length > MOST];
}

function fileName(name, cut, ending) {
  const parts = [about.environment ?? about.group, name, utc(Date.now()).slice(0, 19)].join("-");
  return `${parts.replace(/[^A-Za-z0-9-]+/g, "-")}${cut}.${ending}`;
}

function save(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), WITHIN_MS);
}
