"""What operators have changed at run time, for all instances: pauses, limits, taking in.

Each is a record of the settings topic; the newest one counts, and its deletion takes it back.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import structlog

from proxy.config.settings import MOST_PER_SECOND
from proxy.config.target_limit import Resumed, TargetLimit
from proxy.kafka.settings.settings_records import (
    INGEST,
    LIMITS,
    PAUSED,
    RATE,
    RESUMED,
    ingest_key,
    pattern_in,
    rate_key,
)
from proxy.protocol.bounded_json import read_object

MOST_PAUSES: Final = 1_000
MOST_LIMITS: Final = 1_000
CONTROLS: Final = (PAUSED, RESUMED, LIMITS, RATE, INGEST)

T = TypeVar("T")
log = structlog.get_logger(__name__)


class RunTimeControls:
    """Of one group, as of the last record of each kind."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._paused: dict[str, bool] = {}
        self._resumed: dict[str, Resumed] = {}
        self._limits: dict[str, TargetLimit] = {}
        self.is_ingest_paused = False
        self.max_per_second: int | None = None
        """The bound on each worker, where one is set."""

    @property
    def paused(self) -> frozenset[str]:
        """Patterns of the targets that are paused."""
        return frozenset(self._paused)

    @property
    def resumed(self) -> Mapping[str, Resumed]:
        """Pattern -> the end of its last pause."""
        ended = self._resumed.items()
        return {pattern: end for pattern, end in ended if pattern not in self._paused}

    @property
    def limits(self) -> Mapping[str, TargetLimit]:
        """By pattern."""
        return dict(self._limits)

    def take(self, key: str, value: bytes | None) -> None:
        """A record whose key begins with one of CONTROLS. Raises ValueError where it cannot be
        read; the one before it goes on."""
        if key == ingest_key(self._group_id):
            self.is_ingest_paused = value is not None
        elif key == rate_key(self._group_id):
            self.max_per_second = None if value is None else _rate(value)
        elif (pattern := pattern_in(PAUSED, self._group_id, key)) is not None:
            _keep(self._paused, pattern, None if value is None else True, MOST_PAUSES, "pauses")
        elif (pattern := pattern_in(RESUMED, self._group_id, key)) is not None:
            end = None if value is None else _resumed(value)
            if end and len(self._resumed) >= MOST_PAUSES and pattern not in self._resumed:
                del self._resumed[min(self._resumed, key=lambda name: self._resumed[name].at_ms)]
            _keep(self._resumed, pattern, end, MOST_PAUSES, "pauses that are over")
        elif (pattern := pattern_in(LIMITS, self._group_id, key)) is not None:
            limit = None if value is None else _limit(value)
            _keep(self._limits, pattern, limit, MOST_LIMITS, "limits")


def _keep(kept: dict[str, T], pattern: str, one: T | None, most: int, what: str) -> None:
    if one is None:
        kept.pop(pattern, None)
    elif pattern in kept or len(kept) < most:
        kept[pattern] = one
    else:
        log.error("too many: this one does not count", kind=what, pattern=pattern, most=most)


def _resumed(value: bytes) -> Resumed:
    """Raises ValueError where it does not say when."""
    said = read_object(value)
    at_ms, per_second = said.get("resumed_at"), said.get("per_second")
    if type(at_ms) is not int:
        raise ValueError(f"resumed_at is {at_ms!r}")
    is_rate = type(per_second) is int and 1 <= per_second <= MOST_PER_SECOND
    return Resumed(at_ms, per_second if is_rate else None)


def _rate(value: bytes) -> int:
    """Raises ValueError where it is none."""
    per_second = read_object(value).get("per_second")
    if type(per_second) is not int or not 1 <= per_second <= MOST_PER_SECOND:
        raise ValueError(f"per_second is {per_second!r}")
    return per_second


def _limit(value: bytes) -> TargetLimit:
    """What a later version adds is passed over."""
    said = read_object(value)
    return TargetLimit.model_validate(
        {name: said[name] for name in TargetLimit.model_fields if name in said}
    )
