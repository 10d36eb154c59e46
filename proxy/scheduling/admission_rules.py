"""How much may wait in one ingress partition: records and bytes, in all and for each target."""

from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, Protocol

from proxy.config.settings import AdmissionSettings
from proxy.records.rejection import Rejection
from storage.store import Entry, Store, TargetCounts, bodies_bytes

TOO_MANY: Final = "too-many"
REMEMBERED: Final = 10_000
UNLIMITED: Final = 1 << 62
NEAR_RECORDS: Final = 2048
"""So near to a limit it is looked at more closely what is due by now: as many records are taken
together."""
NEAR_BYTES: Final = 1024 * 1024
"""Of what is due so much is counted, and brought into memory for it: the rest is estimated."""


class Limits:
    """Of records, or of bytes. `in_all`: the most in the partition. `per_target`: shell pattern ->
    the most for each target by itself; the first pattern that fits counts. None: as many as there
    are."""

    def __init__(
        self, in_all: int | None = None, per_target: Mapping[str, int] | None = None
    ) -> None:
        self.in_all = UNLIMITED if in_all is None else in_all
        self._per_target = dict(per_target or {})
        self._matched: dict[str, int] = {}

    def __bool__(self) -> bool:
        return self.in_all != UNLIMITED or self.is_by_target

    @property
    def is_by_target(self) -> bool:
        """Whether any target has a limit of its own."""
        return bool(self._per_target)

    def of(self, target: str) -> int:
        """The most for this target."""
        if target not in self._matched:
            if len(self._matched) >= REMEMBERED:
                self._matched.clear()
            limits = (n for pattern, n in self._per_target.items() if fnmatchcase(target, pattern))
            self._matched[target] = next(limits, UNLIMITED)
        return self._matched[target]


class AdmissionRules(NamedTuple):
    """What may wait in the partition."""

    records: Limits = Limits()
    sizes: Limits = Limits()

    def __bool__(self) -> bool:
        return bool(self.records) or bool(self.sizes)


class Waiting(NamedTuple):
    """What waits: records, or bytes. Of a target that is not counted by name as many may wait as of
    all such targets: these count. Without `by_target` only the limit in all counts."""

    in_all: int
    by_target: TargetCounts | None = None


class _Quota:
    """What limits leave, of records or of bytes."""

    def __init__(self, limits: Limits, waiting: Waiting) -> None:
        self._limits, self.used = limits, waiting.in_all
        is_by_target = limits.is_by_target and waiting.by_target is not None
        self._by_target = waiting.by_target if is_by_target else None
        self._taken: Counter[str] = Counter()

    def used_by(self, target: str) -> int:
        known = 0 if self._by_target is None else self._by_target.most(target)
        return known + self._taken[target]

    def fits(self, amount: int) -> bool:
        return self.used + amount <= self._limits.in_all

    def fits_target(self, target: str, amount: int) -> bool:
        if self._by_target is None:
            return True
        return self.used_by(target) + amount <= self._limits.of(target)

    def holds(self, targets: Sequence[str], amounts: Sequence[int]) -> bool:
        """Whether there is room for all of these, each of one target."""
        if not self.fits(sum(amounts)):
            return False
        if self._by_target is None:
            return True
        wanted: Counter[str] = Counter()
        for target, amount in zip(targets, amounts, strict=True):
            wanted[target] += amount
        return all(self.fits_target(target, amount) for target, amount in wanted.items())

    def take(self, target: str, amount: int) -> None:
        self.used += amount
        self._taken[target] += amount


class Room:
    """What the rules leave, for a number of records that are admitted together."""

    def __init__(self, rules: AdmissionRules, records: Waiting, sizes: Waiting) -> None:
        self._records = _Quota(rules.records, records)
        self._sizes = _Quota(rules.sizes, sizes) if rules.sizes else None

    def holds(self, entries: Sequence[Entry]) -> bool:
        """Whether there is room for all of these."""
        targets = [entry[2] for entry in entries]
        if not self._records.holds(targets, [1] * len(entries)):
            return False
        return self._sizes is None or self._sizes.holds(targets, [len(e[3]) for e in entries])

    def refusal(self, entry: Entry) -> Rejection | None:
        """Why there is no room for one more; None: there is."""
        target, size_bytes, records = entry[2], len(entry[3]), self._records
        if not records.fits(1):
            return _too_many_records(f"{records.used} records", "records")
        if not records.fits_target(target, 1):
            return _too_many_records(
                f"{records.used_by(target)} records for {target}", "per_target"
            )
        sizes = self._sizes
        if sizes is not None and not sizes.fits(size_bytes):
            return _too_many_bytes(f"{sizes.used} bytes", size_bytes, "bytes")
        if sizes is not None and not sizes.fits_target(target, size_bytes):
            found = f"{sizes.used_by(target)} bytes for {target}"
            return _too_many_bytes(found, size_bytes, "bytes_per_target")
        return None

    def take(self, entry: Entry) -> None:
        """One more waits."""
        self._records.take(entry[2], 1)
        if self._sizes is not None:
            self._sizes.take(entry[2], len(entry[3]))


class Waits(Protocol):
    """What waits in a shard, as `Shard` says it."""

    store: Store

    @property
    def half_messages(self) -> Sized: ...
    def pending(self) -> int: ...
    def pending_upto(self, until_ms: int) -> int: ...
    def pending_by_target(self) -> TargetCounts: ...


def room_left(rules: AdmissionRules, shard: Waits, now_ms: int, *, is_ready: bool) -> Room | None:
    """None: as much as there is. What is due by now takes no room. Undecided half messages do, but
    no bytes, since the store has none of them.

    How much of a target is due by now is not known. So its limit does not count while the shard
    catches up, when nothing fires.
    """
    if not rules:
        return None
    by_target = bytes_by_target = None
    if is_ready:
        by_target = shard.pending_by_target() if rules.records.is_by_target else None
        bytes_by_target = (
            shard.store.pending_bytes_by_target() if rules.sizes.is_by_target else None
        )
    records, size_bytes = _not_due(rules, shard, now_ms)
    return Room(rules, Waiting(records, by_target), Waiting(size_bytes, bytes_by_target))


def admission_rules(settings: AdmissionSettings) -> AdmissionRules:
    """As the settings say."""
    return AdmissionRules(
        Limits(settings.records, settings.per_target),
        Limits(settings.size_bytes, settings.bytes_per_target),
    )


def _too_many_records(found: str, setting: str) -> Rejection:
    why = f"{found} wait in this ingress partition, as many as the proxy may keep"
    return Rejection(TOO_MANY, f"{why} (admission.{setting})")


def _too_many_bytes(found: str, size_bytes: int, setting: str) -> Rejection:
    why = f"{found} wait in this ingress partition; {size_bytes} more, as this record takes, would"
    return Rejection(TOO_MANY, f"{why} be beyond what the proxy may keep (admission.{setting})")


def _not_due(rules: AdmissionRules, shard: Waits, now_ms: int) -> tuple[int, int]:
    """How many records wait beyond now, and how many bytes, looked at more closely only where a
    limit is near; of many that are due by now the bytes are estimated."""
    store = shard.store
    records, size_bytes = shard.pending() + len(shard.half_messages), store.pending_bytes()
    is_near = records + NEAR_RECORDS > rules.records.in_all or 2 * size_bytes > rules.sizes.in_all
    if not is_near or store.next_due_ms(now_ms) is None:
        return records, size_bytes
    first = store.due(now_ms, NEAR_RECORDS, NEAR_BYTES).entries if rules.sizes else []
    waiting_bytes, stored = size_bytes - bodies_bytes(first), store.pending() - len(first)
    unseen = max(store.pending_by_time([now_ms])[0] - len(first), 0)
    return records - shard.pending_upto(now_ms), waiting_bytes - waiting_bytes * unseen // max(
        stored, 1
    )
