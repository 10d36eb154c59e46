"""Pauses, rate caps and overdue rules: they requeue due records or end them undelivered."""

import json
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import ceil
from typing import Final, Literal, NamedTuple, TypeAlias

from proxy.config.settings import ReleaseSettings, Resumed, TargetLimit, by_precedence
from proxy.protocol.body import GONE, Delivery
from proxy.protocol.headers import ID, UNTIL_RESUMED
from proxy.protocol.outcomes import EXPIRED, REQUEUED, Outcome, Rejection
from proxy.scheduling.batch import Batch, Hop, NotBefore
from storage.store import Entry

UNTIL_RESUMED_MS: Final = int(UNTIL_RESUMED)
RELEASED_FOR_MS: Final = 7 * 86_400_000
"""After a pause, workers look for the records that the pause held back. If the target was resumed
without a rate (`resume --per-second`), the workers stop this long after the end of the pause."""
REMEMBERED: Final = 10_000
JUST_NOW: Final = Resumed(2**62)
"""Stands for the end of a pause if the time of this end is not recorded."""

Disposition: TypeAlias = Hop | Rejection | Outcome | None
"""The decision about a due record: a hop, a dead letter, another end, or None to deliver it."""


class OverdueRule(NamedTuple):
    """A rule for records of `targets` (a shell pattern) that are overdue for too long."""

    targets: str
    older_than_ms: int
    action: Literal["deliver", "dead-letter", "drop"]

    def end(self, delivery: Delivery, overdue_ms: int) -> Rejection | Outcome | None:
        if self.action == "deliver":
            return None
        detail = (
            f"{overdue_ms} ms overdue; {self.targets} allows {self.older_than_ms} (release.overdue)"
        )
        if self.action == "dead-letter":
            return Rejection("overdue", f"the record for {delivery.target} was {detail}")
        offset, due_ms, ident = delivery.offset, delivery.due_ms, delivery.header(ID)
        return Outcome(offset, EXPIRED, due_ms, ident, detail, target=delivery.target)


class _Limit(NamedTuple):
    """A limit on the records that this worker delivers in a second. Further records are queued."""

    whose: str
    """A target, or the pattern of a pause that is over."""
    per_second: int
    resumed_ms: int | None = None
    """End of the pause (epoch ms), if the limit is for records that a pause held back."""


class _TargetRules(NamedTuple):
    is_paused: bool
    resumed: tuple[tuple[str, Resumed], ...]
    """Pauses that are over, by pattern, the newest first."""
    cap: _Limit | None
    overdue: tuple[OverdueRule, ...]

    @property
    def ends_after_ms(self) -> int | None:
        """No rule ends a record that is overdue by this time or less."""
        return min((r.older_than_ms for r in self.overdue if r.action != "deliver"), default=None)


class ReleaseControl:
    """Applies pauses, rate caps and overdue rules in one worker. `per_target`: shell pattern ->
    records a second. The first pattern that matches a target applies. Limits set at run time take
    precedence over the settings."""

    def __init__(
        self,
        per_target: Mapping[str, int] | None = None,
        overdue: Sequence[OverdueRule] = (),
    ) -> None:
        self._per_target, self._overdue = dict(per_target or {}), tuple(overdue)
        self._caps, self._overdue_now = list(self._per_target.items()), self._overdue
        self._rules: dict[str, _TargetRules] = {}
        self._queues: dict[tuple[str, int | None], TargetRateLimit] = {}
        self.has_rules = bool(self._caps or self._overdue_now)
        self.paused: frozenset[str] = frozenset()
        self.resumed: dict[str, Resumed] = {}
        self.limits: Mapping[str, TargetLimit] = {}
        self.version = 0
        """Number of changes of pauses."""
        self.share = 1.0
        """This worker's part of the ingress partitions, and so of the rate after a pause."""

    def pause(self, patterns: Iterable[str], resumed: Mapping[str, Resumed] | None = None) -> None:
        """Pause exactly these patterns. `resumed`: known pauses that are over."""
        paused = frozenset(patterns)
        known = dict.fromkeys((*self.resumed, *self.paused), JUST_NOW)
        now = {**known, **(resumed or {})}
        ended = [(pattern, end) for pattern, end in now.items() if pattern not in paused]
        now = dict(ended[-REMEMBERED:])
        if (paused, now) != (self.paused, self.resumed):
            self.paused, self.resumed = paused, now
            self.version += 1
            self._rules_have_changed()

    def limit(self, limits: Mapping[str, TargetLimit]) -> None:
        """Apply exactly these limits. They take precedence over the settings' caps and rules."""
        if limits == self.limits:
            return
        self.limits = ordered = by_precedence(limits)
        caps = [(pattern, one.per_second) for pattern, one in ordered.items() if one.per_second]
        rules = [
            OverdueRule(pattern, one.overdue.older_than_ms, one.overdue.action)
            for pattern, one in ordered.items()
            if one.overdue is not None
        ]
        self._caps = [*caps, *self._per_target.items()]
        self._overdue_now = (*rules, *self._overdue)
        self._rules_have_changed()

    def _rules_have_changed(self) -> None:
        self.has_rules = bool(self.paused or self._caps or self._overdue_now)
        self._rules.clear()

    @property
    def release_rates(self) -> dict[str, int]:
        ends = self.resumed.items()
        return {pattern: end.per_second for pattern, end in ends if end.per_second is not None}

    def is_paused(self, target: str) -> bool:
        return self._rules_of(target).is_paused

    def looks_for_paused(self, now_ms: int) -> bool:
        """Return whether a pause that is over may still hold records back."""
        return any(_is_looked_for(end, now_ms) for end in self.resumed.values())

    def is_resumed(self, target: str, now_ms: int) -> bool:
        """Return whether records of the target may still wait after a pause that is over. False if
        the target is paused now."""
        return self._end_of_pause(target, now_ms) is not None

    def is_queue(self, end_ms: int) -> bool:
        """Return whether the pause that ended at `end_ms` is known and ended with a rate. Then the
        records of the pause have places in a queue."""
        ends = self.resumed.values()
        return any(end.at_ms == end_ms and end.per_second is not None for end in ends)

    def not_before(self, delivery: Delivery, now_ms: int) -> NotBefore | None:
        """Return the new not-before time of a paused or queued record. None: it keeps its time.
        Call this method once for each record and transaction, because each call reserves a
        place."""
        is_paused, resumed_ms = delivery.is_paused, delivery.resumed_ms
        if not (is_paused or resumed_ms is not None) or self.is_paused(delivery.target):
            return None
        limit = self._limit_of_resumed(delivery.target, now_ms)
        if limit is None:
            return NotBefore(delivery.due_ms)
        queue = self._queue(limit, now_ms)
        if resumed_ms == limit.resumed_ms and not is_paused:
            queue.note(delivery.wanted_ms)
            return None
        return NotBefore(queue.next_free_ms(now_ms), limit.resumed_ms)

    def concerns(self, topics: Iterable[str], batches: Iterable[Batch[Entry]], now_ms: int) -> bool:
        """Return whether a record may be held back or ended. `topics`: targets of `batches`."""
        ends_after_ms: list[int] = []
        for topic in topics:
            rules = self._rules_of(topic)
            if rules.is_paused or rules.cap is not None:
                return True
            if rules.ends_after_ms is not None:
                ends_after_ms.append(rules.ends_after_ms)
        firsts_ms = (min(batch.deliveries)[0] for batch in batches if batch.deliveries)
        oldest_ms = min(firsts_ms, default=now_ms) if ends_after_ms else now_ms
        return bool(ends_after_ms) and now_ms - oldest_ms > min(ends_after_ms)

    def decide(self, delivery: Delivery, now_ms: int) -> Disposition:
        """Decide on a record. Call this method once for each record and transaction, because each
        call may reserve a place."""
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
            return Hop(delivery, REQUEUED, f"{delivery.target} is paused", UNTIL_RESUMED_MS)
        is_resumed = delivery.resumed_ms is not None
        of_resumed = self._limit_of_resumed(delivery.target, now_ms) if is_resumed else None
        for limit in filter(None, (of_resumed, rules.cap)):
            queue = self._queue(limit, now_ms)
            again_ms = queue.reserve(now_ms, has_reserved=delivery.wanted_ms > delivery.due_ms)
            if again_ms is not None:
                detail = f"{limit.whose} is limited to {limit.per_second} records a second"
                return Hop(delivery, REQUEUED, detail, again_ms, resumed_ms=limit.resumed_ms)
        return None

    def _end_of_pause(self, target: str, now_ms: int) -> tuple[str, Resumed] | None:
        rules = self._rules_of(target)
        if rules.is_paused:
            return None
        return next((one for one in rules.resumed if _is_looked_for(one[1], now_ms)), None)

    def _limit_of_resumed(self, target: str, now_ms: int) -> _Limit | None:
        """Return the limit on records that a pause held back. None: they have no limit."""
        found = self._end_of_pause(target, now_ms)
        if found is None or (per_second := found[1].per_second) is None:
            return None
        return _Limit(found[0], max(1, ceil(per_second * self.share)), found[1].at_ms)

    def _queue(self, limit: _Limit, now_ms: int) -> "TargetRateLimit":
        """Return the queue of the limit. If the rate was lowered, reserved times stay reserved."""
        key, per_second = (limit.whose, limit.resumed_ms), limit.per_second
        queue = self._queues.get(key)
        if queue is None or queue.per_second != per_second:
            self._forget_idle(now_ms)
            queue = TargetRateLimit(per_second) if queue is None else queue.at(per_second)
            self._queues[key] = queue
        return queue

    def _rules_of(self, target: str) -> _TargetRules:
        rules = self._rules.get(target)
        if rules is None:
            if len(self._rules) >= REMEMBERED:
                self._rules.clear()
            rules = self._rules[target] = self._match(target)
        return rules

    def _match(self, target: str) -> _TargetRules:
        caps = (_Limit(target, n) for pattern, n in self._caps if fnmatchcase(target, pattern))
        ends = [one for one in self.resumed.items() if fnmatchcase(target, one[0])]
        return _TargetRules(
            any(fnmatchcase(target, pattern) for pattern in self.paused),
            tuple(sorted(ends, key=lambda one: -one[1].at_ms)),
            next(caps, None),
            tuple(rule for rule in self._overdue_now if fnmatchcase(target, rule.targets)),
        )

    def _forget_idle(self, now_ms: int) -> None:
        """Bound the number of queues: forget idle queues, or the oldest queue if all are busy."""
        if len(self._queues) >= REMEMBERED:
            idle = [key for key, queue in self._queues.items() if queue.is_idle(now_ms)]
            for key in idle or [next(iter(self._queues))]:
                del self._queues[key]


def _is_looked_for(end: Resumed, now_ms: int) -> bool:
    """Return whether a worker still looks for records of the pause. If the pause ended with a rate,
    the worker looks without a time limit."""
    return end.per_second is not None or end.at_ms > now_ms - RELEASED_FOR_MS


def release_control(settings: ReleaseSettings) -> ReleaseControl:
    """Return the control for the settings. Nothing is paused."""
    rules = (OverdueRule(r.targets, r.older_than_ms, r.action) for r in settings.overdue)
    return ReleaseControl(settings.per_target, tuple(rules))


def overdue_rules_json(settings: ReleaseSettings) -> str:
    """Return the overdue rules as an audit reads them."""
    return json.dumps([rule.model_dump() for rule in settings.overdue], sort_keys=True)


BURST_MS: Final = 250
"""The records that a rate allows in this time may be delivered in one burst."""
REFILL_MS: Final = 50
"""When a rate is used up, records wait until as many may pass as the rate allows in this time, at
least one. So the records need few transactions."""


class RateLimit:
    """A token bucket that is full at first. It may go below zero. Then the wait is longer."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self.burst = max(1, per_second * BURST_MS // 1000)
        self._thousandths = self.burst * 1000
        self._refilled_ms: int | None = None
        self._is_used_up = False

    def records_available(self, now_ms: int) -> int:
        """Return the number of records that may pass now, below 0 if too many have passed."""
        if self._refilled_ms is not None:
            earned = max(0, now_ms - self._refilled_ms) * self._per_second
            self._thousandths = min(self.burst * 1000, self._thousandths + earned)
        self._refilled_ms = now_ms
        return self._thousandths // 1000

    def take(self, records: int, now_ms: int) -> None:
        self.records_available(now_ms)
        self._thousandths -= records * 1000

    def wait_ms(self, now_ms: int) -> int:
        """Return the ms until enough records for a transaction may pass. 0: some may pass now."""
        worth = min(self.burst, max(1, self._per_second * REFILL_MS // 1000))
        available = self.records_available(now_ms)
        self._is_used_up = available < (worth if self._is_used_up else 1)
        if not self._is_used_up:
            return 0
        return -((self._thousandths - worth * 1000) // self._per_second)


class WorkerRateLimit:
    """The limit on all records that one worker ends in a second. `limit` is None if none is set."""

    def __init__(self, of_settings: int | None = None) -> None:
        self._of_settings = of_settings
        self.set_at_run_time: int | None = None
        self.limit = None if of_settings is None else RateLimit(of_settings)

    def set(self, per_second: int | None) -> None:
        """Set the limit at run time. None: the limit of the settings applies again."""
        if per_second != self.set_at_run_time:
            self.set_at_run_time = per_second
            now = self._of_settings if per_second is None else per_second
            self.limit = None if now is None else RateLimit(now)


class TargetRateLimit:
    """A rate for one target. Each record beyond the rate reserves a time, once. Records that come
    back at their reserved times may exceed the rate by one burst. So no record must wait again only
    because the records come back in another order."""

    def __init__(self, per_second: int, reserved_us: int = 0) -> None:
        self.per_second = per_second
        self._rate = RateLimit(per_second)
        self._step_us = -(-1_000_000 // per_second)
        self._reserved_us = reserved_us

    def at(self, per_second: int) -> "TargetRateLimit":
        """Return the queue at another rate. At a lower rate, reserved times stay reserved."""
        if per_second == self.per_second:
            return self
        return TargetRateLimit(per_second, self._reserved_us if per_second < self.per_second else 0)

    def reserve(self, now_ms: int, *, has_reserved: bool) -> int | None:
        """Return None if the record may go now, else the epoch ms reserved for it."""
        available = self._rate.records_available(now_ms)
        may_go = (
            available > -self._rate.burst
            if has_reserved
            else self._is_nobody_waiting(now_ms, available)
        )
        if may_go:
            self._rate.take(1, now_ms)
            return None
        return self.next_free_ms(now_ms)

    def next_free_ms(self, now_ms: int) -> int:
        """Reserve the first time after all reserved times, and return it (epoch ms)."""
        self._reserved_us = max(self._reserved_us, now_ms * 1000) + self._step_us
        return -(-self._reserved_us // 1000)

    def note(self, place_ms: int) -> None:
        """Note that this time was reserved, perhaps by a process that has ended."""
        self._reserved_us = max(self._reserved_us, place_ms * 1000)

    def is_idle(self, now_ms: int) -> bool:
        """Return whether nothing changes if this queue is forgotten."""
        available = self._rate.records_available(now_ms)
        return available == self._rate.burst and self._is_nobody_waiting(now_ms, available)

    def _is_nobody_waiting(self, now_ms: int, available: int) -> bool:
        return available > 0 and self._reserved_us <= now_ms * 1000
