// A replay of dead letters: count them, ask, replay, and follow it to the end.

import { attempt, confirm } from "./actions.js";
import { call } from "./api.js";
import { byId, make, number, say, some } from "./elements.js";

const TARGETS_SHOWN = 5;
const NOTHING = "No letter was replayed.";

// Replay letters. `chosen` is the body of a replay without dry_run. Call `then` after the replay.
export async function replay(chosen, then) {
  await attempt(async () => {
    const counted = await run({ ...chosen, dry_run: true }, "Counting");
    if (counted.state === "stopped") return NOTHING;
    if (!counted.replayed) return `No letter can be replayed. ${left(counted)}`;
    const text = `The letters are written to the ingress again: ${targets(counted)}. ${left(counted)}`;
    const yes = `Replay ${some(counted.replayed, "letter")}`;
    if (!(await confirm("Replay dead letters?", text, yes))) return NOTHING;
    const done = await run({ ...chosen, dry_run: false }, "Replaying");
    await then();
    return `Replayed ${some(done.replayed, "letter")}${done.state === "stopped" ? ", then stopped" : ""}. ${left(done)}`;
  });
}

// Run a replay or a dry run and return its last reply. Show its progress and a button to stop it.
async function run(body, word) {
  let reply = await call("POST", "/dead-letters/replays?wait=2s", body);
  const path = `/dead-letters/replays/${reply.id}`;
  const text = make("span", {});
  const stop = make("button", { type: "button",
    onclick: () => call("DELETE", path).catch((refused) => say(refused.message)) }, "Stop");
  if (reply.state === "running") byId("replaying").replaceChildren(text, stop);
  try {
    while (reply.state === "running") {
      text.textContent = `${word}: ${some(reply.replayed, "letter")} so far.`;
      reply = await call("GET", `${path}?wait=2s`);
    }
  } finally {
    byId("replaying").replaceChildren();
  }
  if (reply.state === "failed") throw new Error(`Replayed ${some(reply.replayed, "letter")}, then failed. ${reply.error}`);
  return reply;
}

function targets(reply) {
  const told = reply.by_target.slice(0, TARGETS_SHOWN)
    .map((one) => `${number(one.letters)} to ${one.target}`);
  const others = reply.by_target.length - told.length;
  return told.join(", ") + (others ? `, and to ${some(others, "other topic")}` : "");
}

function left(reply) {
  const told = reply.left.map((one) => one.reason === "already-replayed"
    ? `Already replayed: ${number(one.letters)}.`
    : `Not replayed: ${number(one.letters)} (${one.reason}: ${one.detail}).`);
  return [...told, ...reply.missing.map((place) => `There is no dead letter at ${place}.`)].join(" ");
}
