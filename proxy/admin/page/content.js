// Key, value and headers of a record.

import { make, number, table } from "./elements.js";

const part = (one) => (one === null || one === undefined ? "none"
  : (one.text ?? `not text, in base64: ${one.base64}`) + (one.cut ? ` … (cut, ${number(one.bytes)} bytes in all)` : ""));

export function content(record) {
  const rows = [["Key", part(record.key)], ["Value", part(record.value)],
    ...(record.headers ?? []).map((one) => [`Header ${one.name}`, part(one.value)]),
    ...(record.headers_left_out ? [["Further headers", number(record.headers_left_out)]] : [])];
  return make("details", {}, make("summary", {}, "Key, value and headers"),
    table("Content", [["Part", false], ["Content", false]], rows, "plain"));
}
