// Changes. Each asks for a confirmation first, and reports its result.

import { call } from "./api.js";
import { byId, number, say, some } from "./elements.js";
import { asTyped, moment, typedTime, understood, zone } from "./time.js";

let answered = Promise.resolve();

// Ask a question. Return null if the user does not confirm it, else the text of its field, or true without one.
// `field` has label, pattern, hint, type, first value, and a function that explains the typed text.
// A further question waits until the open question has been answered.
export function confirm(...question) {
  const answer = answered.then(() => ask(...question));
  answered = answer;
  return answer;
}

function ask(title, text, yes, field) {
  const dialog = byId("dialog");
  const input = byId("dialog-input");
  byId("dialog-title").textContent = title;
  byId("dialog-text").textContent = text;
  byId("dialog-yes").textContent = yes;
  byId("dialog-field").hidden = !field;
  input.type = field?.type ?? "text";
  input.step = field?.step ?? "";
  input.required = Boolean(field) && !field.pattern;
  input.pattern = field?.pattern ?? ".*";
  input.title = field?.hint ?? "";
  input.value = field?.value ?? "";
  input.oninput = () => {
    byId("dialog-understood").textContent = field?.understood?.(input.value) ?? "";
  };
  input.oninput();
  byId("dialog-label").textContent = field?.label ?? "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const given = field ? input.value : true;
      resolve(dialog.returnValue === "yes" ? given : null);
    }, { once: true });
  });
}

export async function attempt(what) {
  try {
    say(await what());
  } catch (refused) {
    say(refused.message);
  }
}

const became = (reply) => reply.outcome === null
  ? "The request was written. Its outcome is not known yet."
  : `Outcome: ${reply.outcome}. ${reply.detail ?? ""}`;

export async function pause(target) {
  const text = target
    ? `All instances stop delivering to ${target} until you resume it. No record is lost.`
    : "All instances stop delivering to the targets that fit the pattern, until you resume. No record is lost.";
  const given = await confirm(target ? `Pause ${target}?` : "Pause targets?", text, "Pause",
    target ? null : { label: "Pattern, for example orders-*" });
  if (given === null) return;
  const pattern = target ?? given;
  await attempt(async () => {
    await call("PUT", `/pauses/${encodeURIComponent(pattern)}`);
    return `${pattern} is paused.`;
  });
}

export async function resume(pattern) {
  const text = `Paused records for ${pattern} are delivered at once, or at the rate you name.`;
  const rate = await confirm(`Resume ${pattern}?`, text, "Resume", {
    label: "Records a second (empty: no limit)",
    pattern: "[1-9][0-9]{0,5}|1000000",
    hint: "Enter a number from 1 to 1000000, or nothing.",
  });
  if (rate === null) return;
  await attempt(async () => {
    const query = rate ? `?per_second=${rate}` : "";
    await call("DELETE", `/pauses/${encodeURIComponent(pattern)}${query}`);
    return `${pattern} is resumed.`;
  });
}

export async function switchIngest(isPaused) {
  const text = isPaused
    ? "All instances continue to read the ingress where they stopped. Unread records keep their due, so some may be late."
    : "No instance reads the ingress until you resume. New records, cancels and purges have no effect before. " +
      "Rewritten records are late. Records that were already read are delivered on time.";
  const [title, yes] = isPaused ? ["Resume the ingest?", "Resume"] : ["Pause the ingest?", "Pause"];
  if (!(await confirm(title, text, yes))) return;
  await attempt(async () => {
    await call(isPaused ? "DELETE" : "PUT", "/ingest/paused");
    return isPaused ? "The ingest is resumed." : "The ingest is paused.";
  });
}

const recalled = (reply) => ({
  applied: "The record is recalled. It will not be delivered.",
  missed: `The record was not recalled. ${reply.detail ?? ""}`,
})[reply.outcome] ?? became(reply);

// Call `then` after the recall was written.
export async function recall(origin, then) {
  const text = `The record ${origin} will not be delivered. This cannot be undone.`;
  if (!(await confirm("Recall the record?", text, "Recall"))) return;
  await attempt(async () => {
    const reply = await call("DELETE", `/records/${origin}?wait=5s`);
    then();
    return recalled(reply);
  });
}

// Call `then` with the new origin of the record.
export async function reschedule(origin, due, then) {
  const text = `The record ${origin} is delivered at the time you choose. Its target and content stay the same.`;
  const typed = await confirm("Reschedule the record?", text, "Reschedule", {
    label: `Deliver at (${zone(Date.now())})`,
    type: "datetime-local",
    step: "1",
    value: asTyped(due ?? Date.now()),
    understood,
  });
  if (typed === null) return;
  await attempt(async () => {
    const at = typedTime(typed);
    const reply = await call("PATCH", `/records/${origin}?wait=5s`, { deliver_at: at });
    const isMoved = reply.outcome === "replaced" || reply.outcome === "requeued";
    then(isMoved ? reply.origin : origin);
    return isMoved ? `The record is rescheduled to ${moment(at)}.` : became(reply);
  });
}

function isMissing(targets) {
  if (targets) return false;
  say("Enter the target of the records, or * for all.");
  byId("find-target").focus();
  return true;
}

function between(range) {
  const from = range.due_from ? `, due from ${moment(range.due_from)}` : "";
  return from + (range.due_to ? `, due up to ${moment(range.due_to)}` : "");
}

// Move all records of a filter: ask for the time, count the records, ask again, then move them call by call.
export async function moveAll(targets, range, isNow) {
  if (isMissing(targets)) return;
  const at = isNow ? "now" : await newTime(targets);
  if (at === null) return;
  await attempt(async () => {
    const body = { targets, ...range, deliver_at: at };
    const counted = await call("POST", "/moves", { ...body, dry_run: true });
    if (!counted.records) return `No record can be moved. ${silent(counted)} ${passedOver(counted.left_out)}`;
    const records = some(counted.records, "record");
    const text = [`${records} for ${targets}${between(range)}.`, silent(counted),
      `They are due from ${moment(counted.first_due)} to ${moment(counted.last_due)}.`,
      `${isNow ? "They are delivered now" : `They get the time ${moment(at)} in ${zone(at)}`}.`,
      counted.cut ? "There are more, which stay as they are." : "", passedOver(counted.left_out),
      `The first are ${counted.sample.slice(0, 3).map((one) => one.id ?? one.origin).join(", ")}.`];
    const title = isNow ? "Deliver records now?" : "Reschedule records?";
    const yes = `${isNow ? "Deliver" : "Reschedule"} ${records}`;
    if (!(await confirm(title, text.filter(Boolean).join(" "), yes))) return "Nothing was changed.";
    return moveCounted(body, counted.confirm);
  });
}

async function newTime(targets) {
  const typed = await confirm("Reschedule records?", `All pending records for ${targets} that the filter chooses get one time. ` +
    "They are counted before anything is changed.", "Count them", {
    label: `Deliver at (${zone(Date.now())})`, type: "datetime-local", step: "1", value: asTyped(Date.now()), understood });
  return typed === null ? null : typedTime(typed);
}

async function moveCounted(body, token) {
  let moved = 0;
  const others = {};
  while (token) {
    const done = await call("POST", "/moves", { ...body, dry_run: false, confirm: token });
    moved += done.records;
    const { replaced, requeued, ...missed } = done.outcomes;
    for (const [why, count] of Object.entries({ ...done.left_out, ...missed })) others[why] = (others[why] ?? 0) + count;
    if (done.confirm === token) {
      return `${some(moved, "record")} moved. The others stay as they are. ${silent(done)} ${passedOver(others)}`;
    }
    token = done.confirm;
    say(`${some(moved, "record")} moved so far.`);
  }
  return `${some(moved, "record")} moved. ${passedOver(others)}`;
}

function silent(reply) {
  if (reply.complete) return "";
  const who = reply.unanswered.map((one) => `${one.instance} did not answer. ${one.reason}`);
  return `Some partitions are left out. ${who.join(" ")}`;
}

const passedOver = (reasons) => Object.entries(reasons)
  .map(([why, count]) => `Not moved (${why}): ${number(count)}.`).join(" ");

// `range` may have due_from and due_to, in epoch milliseconds.
export async function purge(targets, range) {
  if (isMissing(targets)) return;
  await attempt(async () => {
    const counted = await call("POST", "/purges", { targets, ...range, dry_run: true });
    const records = `${counted.counted_all && counted.complete !== false ? "" : "at least "}${some(counted.records, "record")}`;
    const when = between(range);
    const text = `All pending records for ${targets}${when} end without delivery, on all instances. ` +
      `Counted: ${records}. This cannot be undone.`;
    if (!(await confirm("Purge pending records?", text, `Purge ${records}`))) return "Nothing was purged.";
    const done = await call("POST", "/purges", { targets, ...range, dry_run: false });
    return done.applied ? `Purged ${records} for ${targets}${when}.`
      : "The purge is written. It takes effect in each partition that has read it. Some partitions have not read it yet.";
  });
}
