// The instances of the group, and a warning if the totals lack some of them.

import { byId, make, number, some, table } from "./elements.js";
import { length } from "./time.js";

let drawn = "";

// Return the instances whose counters make the totals. Rates need two totals of the same instances.
export const counted = (now) => now.instances.map((one) => one.name).sort().join();

export function show(now) {
  const key = JSON.stringify([now.instances, now.unanswered, now.partitions_missing, now.complete]);
  if (drawn === key) return;
  drawn = key;
  byId("incomplete").hidden = now.complete && !now.unanswered.length;
  byId("incomplete").replaceChildren(warning(now));
  const columns = [["Instance", false], ["State", false], ["Version", false], ["Partitions", false],
    ["Pending", true], ["Overdue", true], ["Oldest overdue by", true]];
  const rows = now.instances.map((one) => [one.name, state(one), one.version,
    one.shards.map((shard) => shard.partition).join(", ") || "none", number(one.pending),
    one.overdue === null ? "–" : number(one.overdue), length(one.oldest_overdue_s)]);
  const silent = now.unanswered.map((one) => make("p", { class: "quiet" },
    `${one.instance} did not answer. ${one.reason}`));
  byId("instances").replaceChildren(table("Instances", columns, rows), ...silent);
}

function state(one) {
  if (!one.ready) return one.reason;
  return one.disk_full ? "disk full: reads no new records" : "ready";
}

function warning(now) {
  const all = now.instances.length + now.unanswered.length;
  const who = now.unanswered.length ? `${now.instances.length} of ${some(all, "instance")} answered. ` : "";
  const missing = now.partitions_missing;
  if (now.complete) return `${who}The totals are complete nevertheless.`;
  if (missing === null) return `${who}The broker is silent, so it is not known whether the totals are complete.`;
  return `${who}${missing.length ? `Totals and lists lack the ingress partitions ${missing.join(", ")}.`
    : "A partition moves to another instance, and counts twice."}`;
}
