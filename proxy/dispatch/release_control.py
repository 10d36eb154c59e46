"""Which records are held back though they are due, or end undelivered: rates, pauses, overdue.

The watermark of a shard cannot express exceptions: a record that has to wait, while others go, is
written to the ingress again, with a time before which it is not looked at.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import ceil
from typing import Final, Literal, NamedTuple, TypeAlias

from proxy.config.resumed import Resumed
from proxy.config.settings import ReleaseSettings
from proxy.config.target_limit import TargetLimit, by_precedence
from proxy.dispatch.rate_limit import TargetRateLimit
from proxy.records.body import GONE
from proxy.records.delivery import Delivery
from proxy.records.headers import ID, PARKED
from proxy.records.outcome import EXPIRED, REQUEUED, Outcome
from proxy.records.rejection import Rejection
from proxy.scheduling.batch import Batch, Hop, Place

PARKED_MS: Final = int(PARKED)
RELEASED_FOR_MS: Final = 7 * 86_400_000
"""So long after a pause without a rate a worker that takes partitions over looks for what that held
back."""
REMEMBERED: Final = 10_000

Disposition: TypeAlias = Hop | Rejection | Outcome | None
"""Goes on through the ingress; a dead letter; an end without delivery; None: deliver it."""


class OverdueRule(NamedTuple):
    """What becomes of records for `targets` (a shell pattern) once they are so much overdue."""

    targets: str
    older_than_ms: int
    action: Literal["deliver", "dead-letter", "drop"]

    def end(self, delivery: Delivery, overdue_ms: int) -> Rejection | Outcome | None:
        """How a record ends to which this rule applies; None: it is delivered all the same."""
        if self.action == "deliver":
            return None
        detail = (
            f"{overdue_ms} ms overdue; {self.targets} allows {self.older_than_ms} (release.overdue)"
        )
        if self.action == "dead-letter":
            return Rejection("overdue", f"the record for {delivery.target} was {detail}")
        return Outcome(
            delivery.offset,
            EXPIRED,
            delivery.due_ms,
            delivery.header(ID),
            detail,
            target=delivery.target,
        )


JUST_NOW: Final = Resumed(2**62)
"""Of a pause that was taken back without a word about its end."""
_Resumptions: TypeAlias = tuple[tuple[str, Resumed], ...]
"""Pauses that are over, by pattern; the newest first."""


class _TargetRules(NamedTuple):
    """What counts for one target; `overdue` in the order in which rules are tried."""

    is_paused: bool
    resumed: "_Resumptions"
    per_second: int | None
    overdue: tuple[OverdueRule, ...]

    @property
    def ends_after_ms(self) -> int | None:
        """Records less overdue than this are delivered as they are."""
        return min((r.older_than_ms for r in self.overdue if r.action != "deliver"), default=None)


class ReleaseControl:
    """Applies rates, pauses and rules for the overdue to what is due, for one worker.

    `per_target`: shell pattern -> records a second, for each target by itself; the first pattern
    that fits counts. What is set at run time comes before both.
    """

    def __init__(
        self,
        per_target: Mapping[str, int] | None = None,
        overdue: Sequence[OverdueRule] = (),
    ) -> None:
        self._per_target = dict(per_target or {})
        self._overdue = tuple(overdue)
        self._paused: frozenset[str] = frozenset()
        self._resumed: dict[str, Resumed] = {}
        self.version = 0
        """Counts the changes of pauses."""
        self._limits: Mapping[str, TargetLimit] = {}
        self._caps, self._overdue_now = list(self._per_target.items()), self._overdue
        self._rules: dict[str, _TargetRules] = {}
        self._rates: dict[str, TargetRateLimit] = {}
        self._queues: dict[str, TargetRateLimit] = {}
        self._share = 1.0

    @property
    def paused(self) -> frozenset[str]:
        """Patterns of the targets that are paused."""
        return self._paused

    def pause(self, patterns: Iterable[str], resumed: Mapping[str, Resumed] | None = None) -> None:
        """From now on these are paused, and no others; `resumed`: those that were, as far as is
        known of the time before this session."""
        paused = frozenset(patterns)
        known = dict.fromkeys((*self._resumed, *self._paused), JUST_NOW)
        now = {**known, **(resumed or {})}
        ended = [(pattern, end) for pattern, end in now.items() if pattern not in paused]
        now = dict(ended[-REMEMBERED:])
        if (paused, now) != (self._paused, self._resumed):
            changed = [p for p in self._queues if now.get(p) != self._resumed.get(p)]
            for pattern in changed:
                del self._queues[pattern]
            self._paused, self._resumed = paused, now
            self.version += 1
            self._rules.clear()

    @property
    def release_rates(self) -> dict[str, int]:
        """Pattern of a pause that is over -> so many records a second go of what it held back."""
        ends = self._resumed.items()
        return {pattern: end.per_second for pattern, end in ends if end.per_second is not None}

    def is_paused(self, target: str) -> bool:
        """Whether what is for this target is held back."""
        return self._rules_of(target).is_paused

    def serves(self, share: float) -> None:
        """From now on this worker has so large a share of the ingress partitions, and of rates."""
        if share != self._share:
            self._share = share
            for pattern in self._queues:
                self._queue(pattern, self._resumed[pattern])

    def looks_for_held(self, now_ms: int) -> bool:
        """Whether a pause is over that may have held records back."""
        return any(_counts(end, now_ms) for end in self._resumed.values())

    def is_resumed(self, target: str, now_ms: int) -> bool:
        """Whether such a pause meant the target, and no other pause does now."""
        return self._end_of_pause(target, now_ms) is not None

    def is_queue(self, end_ms: int) -> bool:
        """Whether records that were let go at the end of this pause still have their places."""
        ends = self._resumed.values()
        return any(end.at_ms == end_ms and end.per_second is not None for end in ends)

    def place(self, delivery: Delivery, now_ms: int) -> Place | None:
        """Where a record belongs now that a pause has held back, or that has a place in the queue
        of one; None: where it is. Asked once a record and transaction."""
        is_parked, resumed_ms = delivery.is_parked, delivery.resumed_ms
        if not (is_parked or resumed_ms is not None) or self.is_paused(delivery.target):
            return None
        found = self._end_of_pause(delivery.target, now_ms)
        if found is None:
            return Place(delivery.due_ms) if is_parked else None
        pattern, end = found
        if end.per_second is None:
            return Place(delivery.due_ms)
        queue = self._queue(pattern, end)
        if resumed_ms == end.at_ms and not is_parked:
            queue.note(delivery.wanted_ms)
            return None
        return Place(queue.next_place_ms(now_ms), end.at_ms)

    def _end_of_pause(self, target: str, now_ms: int) -> tuple[str, Resumed] | None:
        rules = self._rules_of(target)
        if rules.is_paused:
            return None
        return next((one for one in rules.resumed if _counts(one[1], now_ms)), None)

    def _queue(self, pattern: str, end: Resumed) -> TargetRateLimit:
        """The places of what this pause has held back: of a rate a worker has its share."""
        assert end.per_second is not None, (pattern, end)
        per_second = max(1, ceil(end.per_second * self._share))
        queue = self._queues.get(pattern)
        queue = TargetRateLimit(per_second) if queue is None else queue.at(per_second)
        self._queues[pattern] = queue
        return queue

    @property
    def limits(self) -> Mapping[str, TargetLimit]:
        """What was set at run time, by pattern."""
        return self._limits

    def limit(self, limits: Mapping[str, TargetLimit]) -> None:
        """From now on these come before the caps and rules of the settings, and no others."""
        if limits == self._limits:
            return
        self._limits = ordered = by_precedence(limits)
        caps = [(pattern, one.per_second) for pattern, one in ordered.items() if one.per_second]
        rules = [
            OverdueRule(pattern, one.overdue.older_than_ms, one.overdue.action)
            for pattern, one in ordered.items()
            if one.overdue is not None
        ]
        self._caps = [*caps, *self._per_target.items()]
        self._overdue_now = (*rules, *self._overdue)
        self._rules.clear()

    def concerns(self, topics: Iterable[str], batches: Iterable[Batch], now_ms: int) -> bool:
        """Whether a record of the batches, which are for `topics`, may not simply be delivered."""
        if not (self._paused or self._caps or self._overdue_now):
            return False
        ends_after_ms: list[int] = []
        for topic in topics:
            rules = self._rules_of(topic)
            if rules.is_paused or rules.per_second is not None:
                return True
            if rules.ends_after_ms is not None:
                ends_after_ms.append(rules.ends_after_ms)
        return bool(ends_after_ms) and now_ms - _oldest_ms(batches, now_ms) > min(ends_after_ms)

    def decide(self, delivery: Delivery, now_ms: int) -> Disposition:
        """What becomes of this record, which is due. Asked once a record and transaction."""
        if delivery.partition == GONE:
            return None
        rules = self._rules_of(delivery.target)
        overdue_ms = now_ms - delivery.due_ms
        for rule in rules.overdue:
            if overdue_ms > rule.older_than_ms:
                if (end := rule.end(delivery, overdue_ms)) is not None:
                    return end
                break
        if rules.is_paused:
            return Hop(delivery, REQUEUED, f"{delivery.target} is paused", PARKED_MS)
        if rules.resumed and (hop := self._in_queue(delivery, now_ms)) is not None:
            return hop
        if rules.per_second is None:
            return None
        return self._at_rate(delivery, rules.per_second, now_ms)

    def _in_queue(self, delivery: Delivery, now_ms: int) -> Hop | None:
        """Keep the rate after a pause, though places pass while nobody delivers."""
        if delivery.resumed_ms is None:
            return None
        found = self._end_of_pause(delivery.target, now_ms)
        if found is None or found[1].per_second is None:
            return None
        pattern, end = found
        again_ms = self._queue(pattern, end).reserve(now_ms, has_reserved=True)
        detail = f"{pattern} is resumed at {end.per_second} records a second"
        if again_ms is None:
            return None
        return Hop(delivery, REQUEUED, detail, again_ms, resumed_ms=end.at_ms)

    def _at_rate(self, delivery: Delivery, per_second: int, now_ms: int) -> Hop | None:
        detail = f"{delivery.target} takes {per_second} records a second"
        rate = self._rates.get(delivery.target)
        if rate is None or rate.per_second != per_second:
            self._forget_idle(now_ms)
            rate = TargetRateLimit(per_second) if rate is None else rate.at(per_second)
            self._rates[delivery.target] = rate
        again_ms = rate.reserve(now_ms, has_reserved=delivery.wanted_ms > delivery.due_ms)
        return None if again_ms is None else Hop(delivery, REQUEUED, detail, again_ms)

    def _rules_of(self, target: str) -> _TargetRules:
        rules = self._rules.get(target)
        if rules is None:
            if len(self._rules) >= REMEMBERED:
                self._rules.clear()
            rules = self._rules[target] = self._match(target)
        return rules

    def _match(self, target: str) -> _TargetRules:
        rates = (n for pattern, n in self._caps if fnmatchcase(target, pattern))
        ends = [one for one in self._resumed.items() if fnmatchcase(target, one[0])]
        return _TargetRules(
            any(fnmatchcase(target, pattern) for pattern in self._paused),
            tuple(sorted(ends, key=lambda one: -one[1].at_ms)),
            next(rates, None),
            tuple(rule for rule in self._overdue_now if fnmatchcase(target, rule.targets)),
        )

    def _forget_idle(self, now_ms: int) -> None:
        """Bound what is kept; should all be busy, the newest takes the place of the oldest."""
        if len(self._rates) >= REMEMBERED:
            idle = [target for target, rate in self._rates.items() if rate.is_idle(now_ms)]
            for target in idle or [next(iter(self._rates))]:
                del self._rates[target]


def _counts(end: Resumed, now_ms: int) -> bool:
    """Whether a worker still looks for what that pause held back: with a rate it may take any time,
    else it was not long ago."""
    return end.per_second is not None or end.at_ms > now_ms - RELEASED_FOR_MS


def release_control(settings: ReleaseSettings) -> ReleaseControl:
    """As the settings say; nothing is paused."""
    rules = (OverdueRule(r.targets, r.older_than_ms, r.action) for r in settings.overdue)
    return ReleaseControl(settings.per_target, tuple(rules))


def overdue_rules_json(settings: ReleaseSettings) -> str:
    """The rules for the overdue as an audit reads them: by these records ended undelivered."""
    return json.dumps([rule.model_dump() for rule in settings.overdue], sort_keys=True)


def _oldest_ms(batches: Iterable[Batch], now_ms: int) -> int:
    """The earliest time at which an entry of these was to fire."""
    firsts = (min(batch.deliveries)[0] for batch in batches if batch.deliveries)
    return min(firsts, default=now_ms)
