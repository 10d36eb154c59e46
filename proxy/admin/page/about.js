// The process that the page shows: its names, its environment, and links.

import { call, fetched, hasToken } from "./api.js";
import { byId, make, say } from "./elements.js";

const AGAIN_MS = 10000;
export let about = {};

// Show the names. If the broker has not told the cluster's id, ask again later.
export async function introduce() {
  about = await call("GET", "/instance");
  const { environment, cluster, group, instance, ingress } = about;
  const names = [`group ${group}`, `instance ${instance}`, `cluster ${cluster ?? "unknown"}`];
  document.title = [...(environment ? [environment] : []), ...names, "kafka-delay-proxy"].join(" · ");
  byId("identity").textContent = [...names, `ingress ${ingress}`].join(" · ");
  colour();
  byId("links").replaceChildren(metrics(), ...link("Runbook", about.runbook_url), ...link("Docs", about.docs_url));
  if (cluster === null) setTimeout(() => introduce().catch(() => {}), AGAIN_MS);
}

function colour() {
  const badge = byId("environment");
  badge.textContent = about.environment ?? "";
  badge.hidden = !about.environment;
  if (!about.colour) return;
  document.body.style.borderTop = `.4rem solid ${about.colour}`;
  badge.style.backgroundColor = about.colour;
  const [red, green, blue] = getComputedStyle(badge).backgroundColor.match(/\d+/g)
    .map((part) => ((Number(part) / 255 + 0.055) / 1.055) ** 2.4);
  badge.style.color = 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000" : "#fff";
}

// A link sends no token, so the page reads the metrics itself if it has one.
function metrics() {
  const made = make("a", { href: "/metrics", target: "_blank" }, "Metrics");
  made.addEventListener("click", (event) => {
    if (!hasToken()) return;
    event.preventDefault();
    const tab = window.open("about:blank");
    fetched("/metrics").then((reply) => reply.text()).then((text) => {
      tab.location = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    }).catch((refused) => {
      tab.close();
      say(refused.message);
    });
  });
  return made;
}

const link = (name, address) =>
  (address ? [make("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, name)] : []);
