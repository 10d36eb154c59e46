"""How much may wait in one ingress partition: in all, and for each target."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from proxy.config.settings import AdmissionSettings
from proxy.records.rejection import Rejection
from storage.store import Entry, TargetCounts

TOO_MANY: Final = "too-many"
REMEMBERED: Final = 10_000


class AdmissionRules:
    """`records`: the most that wait in the partition. `per_target`: shell pattern -> the most for
    each target by itself; the first pattern that fits counts. None: as many as there are."""

    def __init__(
        self, records: int | None = None, per_target: Mapping[str, int] | None = None
    ) -> None:
        self.records, self._per_target = records, dict(per_target or {})
        self._matched: dict[str, int | None] = {}

    @property
    def is_limited_by_target(self) -> bool:
        """Whether any target has a limit of its own."""
        return bool(self._per_target)

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit."""
        return self.records is not None or self.is_limited_by_target

    def limit_of(self, target: str) -> int | None:
        """The most that may wait for this target."""
        if target not in self._matched:
            if len(self._matched) >= REMEMBERED:
                self._matched.clear()
            limits = (n for pattern, n in self._per_target.items() if fnmatchcase(target, pattern))
            self._matched[target] = next(limits, None)
        return self._matched[target]


class Room:
    """What the rules leave, for a number of records that are admitted together.

    `waiting` wait in all. Of a target that is not counted by name as many may wait as of all such
    targets: these count. Without `by_target` only the limit in all counts.
    """

    def __init__(self, rules: AdmissionRules, waiting: int, by_target: TargetCounts | None) -> None:
        self._rules, self._waiting, self._by_target = rules, waiting, by_target
        self._taken: Counter[str] = Counter()

    def holds(self, entries: Sequence[Entry]) -> bool:
        """Whether there is room for all of these."""
        records = self._rules.records
        if records is not None and self._waiting + len(entries) > records:
            return False
        wanted = Counter(entry[2] for entry in entries)
        return all(self._left(target) >= count for target, count in wanted.items())

    def refusal(self, target: str) -> Rejection | None:
        """Why there is no room for one more for this target; None: there is."""
        records = self._rules.records
        if records is not None and self._waiting >= records:
            return _too_many(f"{self._waiting} records wait", "admission.records")
        if self._left(target) < 1:
            return _too_many(
                f"{self._of(target)} records for {target} wait", "admission.per_target"
            )
        return None

    def take(self, target: str) -> None:
        """One more waits."""
        self._waiting += 1
        self._taken[target] += 1

    def _left(self, target: str) -> int:
        limit = None if self._by_target is None else self._rules.limit_of(target)
        if limit is None:
            return 1 << 62
        return limit - self._of(target)

    def _of(self, target: str) -> int:
        known = 0 if self._by_target is None else self._by_target.most(target)
        return known + self._taken[target]


def admission_rules(settings: AdmissionSettings) -> AdmissionRules:
    """As the settings say."""
    return AdmissionRules(settings.records, settings.per_target)


def _too_many(found: str, setting: str) -> Rejection:
    why = f"{found} in this ingress partition, as many as the proxy may keep ({setting})"
    return Rejection(TOO_MANY, why)
