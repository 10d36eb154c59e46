// What changes something: each is confirmed first, in words, and says what became of it.

import { call } from "./api.js";
import { byId, number, say } from "./elements.js";
import { asTyped, moment, understood, zone } from "./time.js";

let answered = Promise.resolve();

// What was typed, or true; null where it was not confirmed. `field`: its label, pattern and hint, its
// type and first value, and what says how that which was typed is understood. One question at a time:
// the next is asked when the one that is open has been answered.
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
  ? "Written. What becomes of it is not known yet."
  : `It was ${reply.outcome}. ${reply.detail ?? ""}`;

export async function pause(target) {
  const text = target
    ? `Records for ${target} are held back, on all instances, until it is resumed. None is lost.`
    : "Records for targets that fit the pattern are held back, on all instances, until it is resumed.";
  const given = await confirm("Pause?", text, "Pause", target ? null : { label: "Pattern, like orders-*" });
  if (given === null) return;
  const pattern = target ?? given;
  await attempt(async () => {
    await call("PUT", `/pauses/${encodeURIComponent(pattern)}`);
    return `${pattern} is paused.`;
  });
}

export async function resume(pattern) {
  const text = `What was held back for ${pattern} is delivered at once, or at the rate you name.`;
  const rate = await confirm("Resume?", text, "Resume", {
    label: "Records a second, empty for no limit",
    pattern: "[1-9][0-9]{0,5}|1000000",
    hint: "A number from 1 to 1000000, or nothing",
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
    ? "All instances read on in the ingress. What was written meanwhile counts as if it came now, each with its own due."
    : "No instance reads anything more of the ingress: new records, cancels, purges and rewritten records " +
      "wait there. What was taken in goes on being delivered.";
  const [title, yes] = isPaused ? ["Take in again?", "Take in"] : ["Stop taking in?", "Stop taking in"];
  if (!(await confirm(title, text, yes))) return;
  await attempt(async () => {
    await call(isPaused ? "DELETE" : "PUT", "/ingest/paused");
    return isPaused ? "Taking in goes on." : "Taking in is paused.";
  });
}

const recalled = (reply) => ({
  applied: "It is taken back, and will not be delivered.",
  missed: `It was not taken back. ${reply.detail ?? ""}`,
})[reply.outcome] ?? became(reply);

// `then` is called when it was written.
export async function recall(origin, then) {
  const text = `${origin} is taken back: it will not be delivered. This cannot be undone.`;
  if (!(await confirm("Recall the record?", text, "Recall"))) return;
  await attempt(async () => {
    const reply = await call("DELETE", `/records/${origin}?wait=5s`);
    then();
    return recalled(reply);
  });
}

// `then` is given where the record lies now.
export async function reschedule(origin, due, then) {
  const text = `${origin} is delivered at another time, instead of at its own. All else of it stays.`;
  const typed = await confirm("Reschedule the record?", text, "Reschedule", {
    label: `Deliver at, in ${zone(Date.now())}`,
    type: "datetime-local",
    step: "1",
    value: asTyped(due ?? Date.now()),
    understood,
  });
  if (typed === null) return;
  await attempt(async () => {
    const at = new Date(typed).getTime();
    const reply = await call("PATCH", `/records/${origin}?wait=5s`, { deliver_at: at });
    const isMoved = reply.outcome === "replaced" || reply.outcome === "requeued";
    then(isMoved ? reply.origin : origin);
    return isMoved ? `It is moved: due ${moment(at)}.` : became(reply);
  });
}

// `range`: due_from and due_to in epoch milliseconds, each where it is given.
export async function purge(targets, range) {
  if (!targets) {
    say("Name the target whose records are to be purged.");
    byId("find-target").focus();
    return;
  }
  await attempt(async () => {
    const counted = await call("POST", "/purges", { targets, ...range, dry_run: true });
    const records = `${counted.counted_all ? "" : "at least "}${number(counted.records)} records`;
    const from = range.due_from ? `, due from ${moment(range.due_from)}` : "";
    const to = range.due_to ? `, due up to ${moment(range.due_to)}` : "";
    const text = `All that waits for ${targets}${from}${to} is taken back, on all instances; here that is ${records}. ` +
      "It will not be delivered. This cannot be undone.";
    if (!(await confirm("Purge?", text, `Purge ${records}`))) return "Nothing was purged.";
    const done = await call("POST", "/purges", { targets, ...range, dry_run: false });
    return done.applied ? `What waited for ${targets}${from}${to} is purged: ${records} here.`
      : "The purge is written. It counts once each partition has read it; not all have yet.";
  });
}
