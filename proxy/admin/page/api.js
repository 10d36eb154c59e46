// Calls of the admin API. The token is kept in this tab alone.

import { keep, kept } from "./kept.js";

const KEY = "admin-token";

export class Refused extends Error {
  constructor(code, detail, error) {
    super(detail);
    this.code = code;
    this.error = error;
  }
}

export const keepToken = (token) => keep("sessionStorage", KEY, token);
export const hasToken = () => Boolean(kept("sessionStorage", KEY));

export const request = (path, options) => fetched(`/api/v1${path}`, options);

export async function fetched(path, options = {}) {
  const token = kept("sessionStorage", KEY);
  const headers = { ...options.headers };
  if (token) headers.Authorization = `Bearer ${token.replace(/[^ -~]/g, "?")}`;
  const reply = await fetch(path, { ...options, headers }).catch(() => {
    throw new Refused(0, "The proxy cannot be reached. Check that it runs, and try again.");
  });
  if (reply.ok) return reply;
  const said = await reply.json().catch(() => ({ detail: `The proxy answered with HTTP status ${reply.status}. Its log may say more.` }));
  const isMissing = said.error === "no-such-path" || said.error === "method-not-allowed";
  throw new Refused(reply.status, isMissing ? "The proxy does not know this call. Reload the page: the proxy may have a new version." : said.detail, said.error);
}

export async function call(method, path, body) {
  const options = { method };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json" };
  }
  return (await request(path, options)).json();
}

// EventSource cannot send the header with the token, so this function reads the stream itself.
export async function events(take) {
  const reader = (await request("/events")).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) take(JSON.parse(part.slice(6)));
  }
}
