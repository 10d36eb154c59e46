"""Whether as much waits in an ingress partition as the setting `admission` allows
(docs/operations/sizing.md#limits-on-what-may-wait)."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from proxy.config.settings import AdmissionSettings
from proxy.scheduling.shard import Shard
from storage.store import TargetCounts

REMEMBERED: Final = 10_000
SLACK_SHARE: Final = 8
"""One part in so many of a limit has to be free before reading goes on."""


class _Limits:
    """Limits of records or of bytes: in all, and for each target.

    `per_target`: shell pattern -> limit. The first pattern that fits a target counts.
    """

    def __init__(
        self, in_all: int | None, per_target: Mapping[str, int], names: tuple[str, str], unit: str
    ) -> None:
        self._in_all, self._per_target = in_all, per_target
        self._name, self._name_by_target = names
        self._unit = unit
        self._matched: dict[str, int | None] = {}

    def reached(
        self, in_all: int, by_target: Callable[[], TargetCounts], *, is_held: bool
    ) -> str | None:
        """Return which limit holds reading, None where there is room."""
        if self._in_all is not None and in_all >= _wanted(self._in_all, is_held=is_held):
            return self._said(in_all, self._name, self._in_all)
        if not self._per_target:
            return None
        counts = by_target()
        for target, count in counts.by_name.items():
            limit = self._of(target) if count else None
            if limit is not None and count >= _wanted(limit, is_held=is_held):
                return self._said(count, self._name_by_target, limit, f" for {target}")
        limit = max(self._per_target.values())
        if counts.others >= _wanted(limit, is_held=is_held):
            return self._said(counts.others, self._name_by_target, limit, " for further targets")
        return None

    def _of(self, target: str) -> int | None:
        if target not in self._matched:
            if len(self._matched) >= REMEMBERED:
                self._matched.clear()
            limits = (n for pattern, n in self._per_target.items() if fnmatchcase(target, pattern))
            self._matched[target] = next(limits, None)
        return self._matched[target]

    def _said(self, count: int, name: str, limit: int, of_target: str = "") -> str:
        return f"{count} {self._unit}{of_target} wait, and admission.{name} is {limit}"


class WaitingLimits:
    """The limits of the setting `admission`, which count for each ingress partition by itself.

    Undecided half messages do not count: only reading ends them.
    """

    def __init__(self, settings: AdmissionSettings) -> None:
        self._records = _Limits(
            settings.records, settings.per_target, ("records", "per_target"), "records"
        )
        self._sizes = _Limits(
            settings.size_bytes, settings.bytes_per_target, ("bytes", "bytes_per_target"), "bytes"
        )

    def reached(self, shard: Shard, *, is_held: bool) -> str | None:
        """Return which limit holds reading of this shard, None where there is room.

        `is_held`: reading is held. Then an eighth of each limit has to be free.
        """
        waiting = shard.pending()
        records = self._records.reached(waiting, shard.pending_by_target, is_held=is_held)
        return records or self._sizes.reached(
            _still_waiting(shard.pending_bytes(), waiting, shard.store.pending()),
            lambda: _bytes_by_target(shard),
            is_held=is_held,
        )


def _bytes_by_target(shard: Shard) -> TargetCounts:
    """Estimate the bytes that wait for each target."""
    in_bytes, waiting = shard.store.pending_bytes_by_target(), shard.pending_by_target()
    stored = shard.store.pending_by_target()
    by_name = {
        target: _still_waiting(size_bytes, waiting.most(target), stored.most(target))
        for target, size_bytes in in_bytes.by_name.items()
    }
    others = _still_waiting(in_bytes.others, waiting.others, stored.others)
    return TargetCounts(by_name, others)


def _still_waiting(size_bytes: int, waiting: int, stored: int) -> int:
    """Estimate the bytes of the records that still wait, by the mean size of all stored records.

    A record that was taken back or moved stays stored until its time, which may be days away. If
    its bytes counted, reading could be held until then, though nothing waits.
    """
    return size_bytes * waiting // stored if stored else 0


def _wanted(limit: int, *, is_held: bool) -> int:
    """So much must wait for reading to be held, or to stay so."""
    return limit - limit // SLACK_SHARE if is_held else limit
