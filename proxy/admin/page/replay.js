// Sending dead letters in again: counted first, confirmed, then followed to its end.

import { attempt, confirm } from "./actions.js";
import { call } from "./api.js";
import { byId, make, number, say } from "./elements.js";

const TARGETS_TOLD = 5;

// `chosen`: the body of a replay but for dry_run. `then` is called when something was replayed.
export async function replay(chosen, then) {
  await attempt(async () => {
    const counted = await run({ ...chosen, dry_run: true }, "Counting");
    if (counted.state === "stopped") return "Nothing was replayed.";
    if (!counted.replayed) return `Nothing can be replayed. ${left(counted)}`;
    const text = `They are sent in again: ${targets(counted)}. ${left(counted)}`;
    const yes = `Replay ${number(counted.replayed)}`;
    if (!(await confirm("Replay dead letters?", text, yes))) return "Nothing was replayed.";
    const done = await run({ ...chosen, dry_run: false }, "Replaying");
    await then();
    return `${number(done.replayed)} replayed${done.state === "stopped" ? ", then stopped" : ""}. ${left(done)}`;
  });
}

// The reply at the end of a replay or dry run; until then how far it is, and a way to stop it.
async function run(body, word) {
  let reply = await call("POST", "/dead-letters/replays?wait=2s", body);
  const path = `/dead-letters/replays/${reply.id}`;
  const text = make("span", {});
  const stop = make("button", { type: "button",
    onclick: () => call("DELETE", path).catch((refused) => say(refused.message)) }, "Stop");
  if (reply.state === "running") byId("replaying").replaceChildren(text, stop);
  try {
    while (reply.state === "running") {
      text.textContent = `${word}: ${number(reply.replayed)} so far.`;
      reply = await call("GET", `${path}?wait=2s`);
    }
  } finally {
    byId("replaying").replaceChildren();
  }
  if (reply.state === "failed") throw new Error(`${number(reply.replayed)} replayed. ${reply.error}`);
  return reply;
}

function targets(reply) {
  const told = reply.by_target.slice(0, TARGETS_TOLD)
    .map((one) => `${number(one.letters)} to ${one.target}`);
  const others = reply.by_target.length - told.length;
  return told.join(", ") + (others ? `, and to ${number(others)} topics more` : "");
}

function left(reply) {
  const told = reply.left.map((one) => one.reason === "already-replayed"
    ? `${number(one.letters)} were replayed already.`
    : `${number(one.letters)} left, ${one.reason}: ${one.detail}.`);
  return [...told, ...reply.missing.map((place) => `No dead letter lies at ${place}.`)].join(" ");
}
