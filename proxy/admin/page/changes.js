// The record of changes by the admin port.

import { call } from "./api.js";
import { byId, make, number, some, table } from "./elements.js";
import { exports, utc } from "./export.js";
import { drawTimes, moment } from "./time.js";

const SHOWN = 50;
const MOST = 1000;
const EXPORTED = [["at", (one) => utc(one.at)],
  ...["caller", "role", "address", "instance", "call", "body", "status", "result", "left_out"].map((name) => [name, (one) => one[name]])];

export function listen() {
  byId("changes-show").addEventListener("click", () => show(SHOWN)
    .catch((refused) => byId("changes").replaceChildren(make("p", {}, refused.message))));
}

async function show(limit) {
  const { changes } = await call("GET", `/changes?limit=${limit}`);
  drawTimes("changes", () => list(changes));
}

function list(changes) {
  const columns = [["Time", false], ["Caller", false], ["Address", false], ["Call", false], ["Status", true],
    ["Result", false]];
  const rows = changes.map((one) => [moment(one.at), `${one.caller} (${one.role})`, one.address,
    [one.call, one.body].filter(Boolean).join(" "), number(one.status),
    one.result + (one.left_out ? ` ${some(one.left_out, "refused change")} before it not listed.` : "")]);
  const more = make("button", { type: "button", onclick: () => show(MOST).catch(() => {}) }, "Show 1,000");
  byId("changes").replaceChildren(...(rows.length ? [table("Changes", columns, rows)]
    : [make("p", { class: "quiet" }, "No changes have been recorded.")]),
  ...(rows.length === SHOWN ? [more] : []),
  ...(rows.length ? [exports("changes", {}, EXPORTED, async () =>
    [(await call("GET", `/changes?limit=${MOST}`)).changes, null])] : []));
}
