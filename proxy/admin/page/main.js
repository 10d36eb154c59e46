// The start: ask for the token if one is needed, then draw each snapshot.

import * as about from "./about.js";
import { pause } from "./actions.js";
import { call, events, keepToken } from "./api.js";
import * as changes from "./changes.js";
import { byId } from "./elements.js";
import * as instances from "./instances.js";
import * as letters from "./letters.js";
import * as overview from "./overview.js";
import * as picture from "./picture.js";
import * as search from "./search.js";
import { listen } from "./time.js";

const AGAIN_MS = 2000;

function show(now) {
  if (byId("content").hidden) letters.loadTopics().catch(() => {});
  byId("access").hidden = true;
  byId("content").hidden = false;
  byId("connection").textContent = `Live · version ${now.version}`;
  picture.show(now.by_time);
  overview.show(now);
  instances.show(now);
}

function explain(refused) {
  if (refused.code !== 401 && refused.code !== 403) {
    byId("connection").textContent = `No connection. ${refused.message} Trying again…`;
    return true;
  }
  byId("connection").textContent = "No access";
  byId("content").hidden = true;
  byId("access").hidden = false;
  byId("token-form").hidden = refused.error === "closed";
  byId("access-text").textContent = refused.code === 403 ? refused.message
    : "This page needs a token of the proxy. The settings `admin.token` and `admin.tokens` name its tokens.";
  return false;
}

// Say who is logged in. The style sheet hides the parts that need a higher role.
async function introduce() {
  const me = await call("GET", "/me");
  byId("caller").textContent = `${me.name}: ${me.role}`;
  document.body.dataset.role = me.role;
  document.body.dataset.contents = me.contents;
  await about.introduce();
}

async function follow() {
  let isAgain = true;
  try {
    await introduce();
    await events(show);
    byId("connection").textContent = "The connection has ended. Trying again…";
  } catch (refused) {
    isAgain = explain(refused);
  }
  if (isAgain) setTimeout(follow, AGAIN_MS);
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value.trim());
  byId("token").value = "";
  follow();
});
byId("pause-pattern").addEventListener("click", () => pause());
listen(byId("zone"));
picture.listen();
search.listen();
letters.listen();
changes.listen();
follow();
