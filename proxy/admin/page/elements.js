// Makers of elements. Text is always set as text, so a record's content is never read as HTML.

import { typedTime } from "./time.js";

export const byId = (id) => document.getElementById(id);

export function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

export function drawing(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Make a table. `columns` are [name, isNumber]. The first cell of a row is its heading.
export function table(caption, columns, rows, kind = "cards") {
  const heads = columns.map(([name, isNumber]) =>
    make("th", { scope: "col", class: isNumber ? "number" : "" }, name));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell, at) => {
    const [name, isNumber] = columns[at];
    const attributes = { class: isNumber ? "number" : "" };
    return at === 0
      ? make("th", { ...attributes, scope: "row" }, cell)
      : make("td", { ...attributes, "data-name": name }, cell);
  })));
  return make("table", { class: kind, "aria-label": caption },
    make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body));
}

// Return the text of a field. `givenTime` returns epoch milliseconds, or null.
export const given = (id) => byId(id).value.trim();
export const givenTime = (id) => (given(id) ? typedTime(given(id)) : null);

export const number = (value) => Math.round(value).toLocaleString("en");
export const some = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

export function say(text) {
  byId("said").textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { byId("said").textContent = ""; }, 12000);
}
