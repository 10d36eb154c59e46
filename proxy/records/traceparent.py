"""The W3C header `traceparent` (https://www.w3.org/TR/trace-context/#traceparent-header)."""

import re
from typing import Final, NamedTuple

TRACEPARENT: Final = "traceparent"
_FORM: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII
)
_SAMPLED: Final = 0x01


class TraceParent(NamedTuple):
    """The producer's span, in hexadecimal digits, and whether it is recorded."""

    trace_id: str
    span_id: str
    is_sampled: bool


def read_traceparent(raw: bytes | None) -> TraceParent | None:
    """None where the header is missing or not a valid one.

    A later version than 00 may have more behind the four fields.
    """
    found = _FORM.fullmatch((raw or b"").decode("ascii", "replace"))
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    is_known = version != "ff" and (version != "00" or more is None)
    if not (is_known and trace_id.strip("0") and span_id.strip("0")):
        return None
    return TraceParent(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))
