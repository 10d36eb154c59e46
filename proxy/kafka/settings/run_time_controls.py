"""What operators have changed at run time, for all instances: pauses, limits, taking in.

Each is a record of the settings topic; the newest one counts, and its deletion takes it back.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from proxy.config.settings import MOST_PER_SECOND
from proxy.config.target_limit import TargetLimit
from proxy.kafka.settings.settings_records import (
    INGEST,
    LIMITS,
    PAUSED,
    ingest_key,
    limited_pattern,
    paused_pattern,
)

MOST_PAUSES: Final = 1_000
MOST_LIMITS: Final = 1_000
CONTROLS: Final = (PAUSED, LIMITS, INGEST)

T = TypeVar("T")
log = structlog.get_logger(__name__)


class Pause(NamedTuple):
    """Of one pattern: held back, or resumed at so many records a second."""

    per_second: int | None = None

    @classmethod
    def from_value(cls, value: bytes) -> "Pause":
        """Held back, whatever the record says, but where it names a rate."""
        try:
            per_second = _object(value).get("per_second")
        except ValueError:
            return cls()
        is_rate = type(per_second) is int and 1 <= per_second <= MOST_PER_SECOND
        return cls(per_second if is_rate else None)


class RunTimeControls:
    """Of one group, as of the last record of each kind."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._pauses: dict[str, Pause] = {}
        self._limits: dict[str, TargetLimit] = {}
        self.is_ingest_paused = False

    @property
    def paused(self) -> frozenset[str]:
        """Patterns of the targets that are paused."""
        return frozenset(name for name, pause in self._pauses.items() if pause.per_second is None)

    @property
    def release_rates(self) -> Mapping[str, int]:
        """Pattern of a pause that was lifted -> so many a second are released of what it held."""
        return {name: n for name, (n,) in self._pauses.items() if n is not None}

    @property
    def limits(self) -> Mapping[str, TargetLimit]:
        """By pattern."""
        return dict(self._limits)

    def take(self, key: str, value: bytes | None) -> None:
        """A record whose key begins with one of CONTROLS. Raises ValueError where it is no limit;
        the one before it goes on."""
        if key == ingest_key(self._group_id):
            self.is_ingest_paused = value is not None
        elif (pattern := paused_pattern(self._group_id, key)) is not None:
            pause = None if value is None else Pause.from_value(value)
            _keep(self._pauses, pattern, pause, MOST_PAUSES, "pauses")
        elif (pattern := limited_pattern(self._group_id, key)) is not None:
            limit = None if value is None else _limit(value)
            _keep(self._limits, pattern, limit, MOST_LIMITS, "limits")


def _keep(kept: dict[str, T], pattern: str, one: T | None, most: int, what: str) -> None:
    if one is None:
        kept.pop(pattern, None)
    elif pattern in kept or len(kept) < most:
        kept[pattern] = one
    else:
        log.error("too many: this one does not count", kind=what, pattern=pattern, most=most)


def _limit(value: bytes) -> TargetLimit:
    """What a later version adds is passed over."""
    said = _object(value)
    return TargetLimit.model_validate(
        {name: said[name] for name in TargetLimit.model_fields if name in said}
    )


def _object(value: bytes) -> dict[str, Any]:
    said = json.loads(value)
    return said if isinstance(said, dict) else {}
