"""Reads records of the outcomes topic (docs/guide.md#outcomes)."""

import json
from typing import Any


def read_outcome(value: bytes | None) -> dict[str, Any] | None:
    """The outcome that a record's value holds; None where it holds none."""
    try:
        found = json.loads(value or b"")
    except ValueError:
        return None
    is_one = isinstance(found, dict) and all(
        isinstance(found.get(name), str) for name in ("origin", "outcome")
    )
    return found if is_one else None
