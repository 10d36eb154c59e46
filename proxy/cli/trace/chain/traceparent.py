"""The trace-id of a W3C `traceparent` (https://www.w3.org/TR/trace-context/#traceparent-header)."""

import re
from typing import Final

TRACEPARENT: Final = "traceparent"
_FORM: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?", re.ASCII
)


def trace_id_of(raw: bytes | None) -> str | None:
    """32 hexadecimal digits; None where the header is missing or not a valid one.

    A later version than 00 may have more behind the four fields.
    """
    found = _FORM.fullmatch((raw or b"").decode("ascii", "replace"))
    if found is None:
        return None
    version, trace_id, parent_id, more = found.groups()
    is_known = version != "ff" and (version != "00" or more is None)
    is_valid = is_known and trace_id.strip("0") and parent_id.strip("0")
    return trace_id if is_valid else None
