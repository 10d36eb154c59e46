"""The limits of the setting `admission` (docs/operations/sizing.md#limits-on-what-may-wait)."""

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from proxy.config.settings import AdmissionSettings
from proxy.scheduling.shard import Shard
from storage.store import TargetCounts

REMEMBERED: Final = 10_000
SLACK_SHARE: Final = 8
"""1/SLACK_SHARE of a limit must be free before reading goes on."""


class _Limits:
    """Limits of records or of bytes, in all and for each target. `per_target`: shell pattern ->
    limit. The first pattern that matches a target applies. `names` are the two settings' names."""

    def __init__(
        self, in_all: int | None, per_target: Mapping[str, int], names: tuple[str, str], unit: str
    ) -> None:
        self._in_all, self._per_target = in_all, per_target
        self._name, self._name_by_target = names
        self._unit = unit
        self._limit_of = lru_cache(REMEMBERED)(self._first_match)
        self.are_set = in_all is not None or bool(per_target)

    def reached(
        self, in_all: int, by_target: Callable[[], TargetCounts], *, is_full: bool
    ) -> str | None:
        for count, limit, name, whose in self._counts(in_all, by_target):
            slack = limit // SLACK_SHARE if limit and is_full else 0
            if limit is not None and count >= limit - slack:
                of_target = whose and f" for {whose}"
                return (
                    f"{count} {self._unit}{of_target} are pending, and admission.{name} is {limit}"
                )
        return None

    def _counts(
        self, in_all: int, by_target: Callable[[], TargetCounts]
    ) -> Iterator[tuple[int, int | None, str, str]]:
        """Yield each count with its limit, the limit's name, and the target."""
        yield in_all, self._in_all, self._name, ""
        if self._per_target:
            counts = by_target()
            for target, count in counts.by_name.items():
                limit = self._limit_of(target) if count else None
                yield count, limit, self._name_by_target, target
            largest = max(self._per_target.values())
            yield counts.others, largest, self._name_by_target, "other targets"

    def _first_match(self, target: str) -> int | None:
        limits = (n for pattern, n in self._per_target.items() if fnmatchcase(target, pattern))
        return next(limits, None)


class PendingLimits:
    """The limits of the setting `admission`, for each ingress partition by itself. Undecided half
    messages are not counted, because later records must be read to decide them."""

    def __init__(self, settings: AdmissionSettings) -> None:
        self._records = _Limits(
            settings.records, settings.per_target, ("records", "per_target"), "records"
        )
        self._sizes = _Limits(
            settings.size_bytes, settings.bytes_per_target, ("bytes", "bytes_per_target"), "bytes"
        )
        self.are_set = self._records.are_set or self._sizes.are_set

    def reached(self, shard: Shard, *, is_full: bool) -> str | None:
        """Return which limit pauses reading of this shard, None if there is room."""
        pending = shard.pending()
        records = self._records.reached(pending, shard.pending_by_target, is_full=is_full)
        return records or self._sizes.reached(
            _still_pending(shard.store.pending_bytes(), pending, shard.store.pending()),
            lambda: _bytes_by_target(shard),
            is_full=is_full,
        )


def _bytes_by_target(shard: Shard) -> TargetCounts:
    in_bytes, pending = shard.store.pending_bytes_by_target(), shard.pending_by_target()
    stored = shard.store.pending_by_target()
    by_name = {
        target: _still_pending(size_bytes, pending.most(target), stored.most(target))
        for target, size_bytes in in_bytes.by_name.items()
    }
    return TargetCounts(by_name, _still_pending(in_bytes.others, pending.others, stored.others))


def _still_pending(size_bytes: int, pending: int, stored: int) -> int:
    """Estimate the bytes of the pending records, by the mean size of all stored records. Cancelled
    records stay stored until their time. They must not pause reading for days."""
    return size_bytes * pending // stored if stored else 0
