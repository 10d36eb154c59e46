"""Key, value and headers of a record in JSON, cut to a limit."""

from base64 import b64encode
from codecs import getincrementaldecoder
from collections.abc import Mapping
from typing import Any, Final

from proxy.protocol.body import Headers

VALUE_BYTES: Final = 65_536
OTHER_BYTES: Final = 4_096
HEADERS: Final = 100

_utf_8 = getincrementaldecoder("utf-8")


def content_of(key: bytes | None, value: bytes | None, headers: Headers) -> Mapping[str, Any]:
    """Return the parts of a record, with at most HEADERS headers."""
    return {
        "key": _part(key, OTHER_BYTES),
        "value": _part(value, VALUE_BYTES),
        "headers": [
            {"name": name, "value": _part(raw, OTHER_BYTES)} for name, raw in headers[:HEADERS]
        ],
        "headers_left_out": max(0, len(headers) - HEADERS),
    }


def _part(raw: bytes | None, most_bytes: int) -> Mapping[str, Any] | None:
    if raw is None:
        return None
    size = {"bytes": len(raw), "cut": len(raw) > most_bytes}
    try:
        return {"text": _utf_8().decode(raw[:most_bytes], final=not size["cut"]), **size}
    except UnicodeDecodeError:
        return {"base64": b64encode(raw[:most_bytes]).decode(), **size}
