// Key, value and headers of a record.

import { make, number, table } from "./elements.js";

const part = (one) => (one === null || one === undefined ? "none"
  : (one.text ?? `base64: ${one.base64}`) + (one.cut ? ` … (${number(one.bytes)} bytes)` : ""));

export function content(record) {
  const rows = [["Key", part(record.key)], ["Value", part(record.value)],
    ...(record.headers ?? []).map((one) => [`Header ${one.name}`, part(one.value)])];
  return make("details", {}, make("summary", {}, "Key, value and headers"),
    table("Content", [["Part", false], ["Content", false]], rows, "plain"));
}
