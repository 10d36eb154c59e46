"""One line of `watch`: when, how late or what else it is, where it lies, what it says."""

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.cli.terminal.output import shown_bytes, shown_time
from proxy.records.headers import ID

WHAT_WIDTH = len("dead-lettered")


def watch_line(arrival: Mapping[str, Any], key: bytes | None, value: bytes | None) -> str:
    """The line for a record as `describe_arrival` gives it; `ended` is there for an outcome."""
    ended = arrival.get("ended")
    what = ended["outcome"] if ended else _what(arrival)
    told = _outcome_cells(ended) if ended else _record_cells(arrival, key, value)
    place = f"{arrival['partition']}/{arrival['offset']}"
    return "  ".join([shown_time(arrival["arrived_ms"]), f"{what:>{WHAT_WIDTH}}", place, *told])


def _what(arrival: Mapping[str, Any]) -> str:
    if arrival["check"] is not None:
        return f"check {arrival['check']}"
    if arrival["error"] is not None:
        return "dead letter"
    lateness_ms = arrival["lateness_ms"]
    return "not delayed" if lateness_ms is None else f"{lateness_ms:+d} ms"


def _record_cells(
    arrival: Mapping[str, Any], key: bytes | None, value: bytes | None
) -> Iterator[str]:
    yield shown_bytes(key)
    yield shown_bytes(value)
    if arrival["check"] is not None:
        yield f"commit or roll back: {_plain(arrival['headers'].get(ID))}"
    if arrival["error"] is not None:
        yield f"{_plain(arrival['error'])}: {_plain(arrival['error_detail'])}"
        yield f"was {_plain(arrival['origin'])}"


def _outcome_cells(ended: Mapping[str, Any]) -> Iterator[str]:
    yield _plain(ended["origin"])
    if ended.get("id") is not None:
        yield f"id {_plain(ended['id'])}"
    if isinstance(due_ms := ended.get("due"), int):
        yield f"due {shown_time(due_ms)}"
    if ended.get("next_origin"):
        yield f"next {_plain(ended['next_origin'])}"
    if ended.get("detail"):
        yield _plain(ended["detail"])


def _plain(text: object) -> str:
    """On one line, and harmless to a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text or ""))
