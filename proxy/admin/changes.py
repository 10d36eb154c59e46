"""The record of changes: a topic that all instances share (docs/admin-api.md#record-of-changes)."""

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog
from pydantic import Field, ValidationError

from proxy.admin.answers import Answer, Count
from proxy.admin.broker_access import BrokerAccess
from proxy.admin.models import Time
from proxy.admin.problem import Problem
from proxy.config.settings import Role
from proxy.protocol.bounded_json import JsonRefused, read_object

MOST_CHARACTERS: Final = 1_000
MOST_RECORD_BYTES: Final = 32_768
REFUSED_AT_MOST: Final = 100
REFUSED_WITHIN_S: Final = 60.0

log = structlog.get_logger(__name__)


class Change(Answer):
    """A change that a caller of the admin port made or tried to make."""

    at: Time
    caller: str
    role: Role
    address: str = Field(description="The caller's address.")
    instance: str = Field(description="The `instance_id` of the process that was called.")
    call: str = Field(description="Method and path with the query.")
    body: str = Field(description="The first 1,000 characters of the body.")
    status: int = Field(description="HTTP status of the reply.")
    result: str = Field(description="The first 1,000 characters of the reply.")
    left_out: Count = Field(
        description="Refused changes just before this one that are not in the list. A process "
        "records at most 100 refused changes a minute."
    )


class Changes(Answer):
    """Changes, the newest first."""

    changes: list[Change] = Field(max_length=1000)


class ChangeRecorder:
    """Writes changes to the log and to the topic. Thread-safe.

    Every successful change is written. The number of refused changes is bounded, because a caller
    with a low role may send them without end."""

    def __init__(self, broker: BrokerAccess, now_s: Callable[[], float] = time.monotonic) -> None:
        self._broker, self._now_s = broker, now_s
        self._lock = threading.Lock()
        self._since_s, self._refused, self._left_out = now_s(), 0, 0

    def record(self, change: Change) -> None:
        """Write a change. If the topic cannot be written, only the log has the change. The change
        is not undone."""
        left_out = self._left_out_before(change)
        if left_out is None:
            return
        change = change.model_copy(update={"left_out": left_out})
        log.info("change by the admin port", **change.model_dump())
        try:
            self._broker.write_change(change.model_dump_json().encode())
        except Problem as problem:
            log.error("a change is only in the log", why=str(problem), call=change.call)
        except Exception:
            log.exception("a change is only in the log", call=change.call)

    def _left_out_before(self, change: Change) -> int | None:
        """Return the number of changes left out before this one. None means that this change is
        left out, too."""
        with self._lock:
            if change.status >= 400:
                if self._now_s() - self._since_s >= REFUSED_WITHIN_S:
                    self._since_s, self._refused = self._now_s(), 0
                self._refused += 1
                if self._refused > REFUSED_AT_MOST:
                    self._left_out += 1
                    return None
            left_out, self._left_out = self._left_out, 0
            return left_out


def is_dry_run(body: bytes, status: int) -> bool:
    """Whether a call has changed nothing because its body says `dry_run`."""
    try:
        return status < 400 and read_object(body).get("dry_run") is True
    except JsonRefused:
        return False


def cut(text: str) -> str:
    """Return the first characters of a text."""
    return text[:MOST_CHARACTERS]


def read_change(value: bytes | None) -> Change | None:
    """Parse a record of the topic. Ignore fields of later versions. Return None for a record that
    another program has written."""
    try:
        said = read_object(value, MOST_RECORD_BYTES)
        return Change.model_validate(
            {name: said[name] for name in Change.model_fields if name in said}
        )
    except (JsonRefused, ValidationError):
        return None
