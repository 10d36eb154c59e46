"""What holds back a part of what is due, or ends it: rates, pauses, rules for the overdue.

The watermark of a shard cannot express exceptions (DESIGN 5.9): a record that has to wait, while
others go, is written to the ingress again, with a time before which it is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple, TypeAlias

from proxy.config.settings import ReleaseSettings
from proxy.records.body import GONE
from proxy.records.delivery import Delivery
from proxy.records.entry import target_of
from proxy.records.headers import ID
from proxy.records.outcome import EXPIRED, REQUEUED, Outcome
from proxy.records.rejection import Rejection
from proxy.scheduling.batch import Batch, Hop

SAVED_MS: Final = 250
"""What a rate allows and nobody uses is saved up for so long: it may come at once, later."""
REFILL_MS: Final = 50
"""A rate that is used up lets nothing through for so long: few transactions rather than many."""
SOONEST_AGAIN_MS: Final = 5_000
LATEST_AGAIN_MS: Final = 60_000
"""When a record of a paused target is looked at again: after half the time that it is late."""
REMEMBERED: Final = 10_000

Verdict: TypeAlias = Hop | Rejection | Outcome | None
"""Later, a dead letter, an end without delivery; None: deliver it."""


class OverdueRule(NamedTuple):
    """What becomes of records for `targets` (a shell pattern) that are so much later than due."""

    targets: str
    older_than_ms: int
    action: Literal["deliver", "dead-letter", "drop"]


class RateCap:
    """Lets so many records through a second; a token bucket, full when made.

    Over any stretch of time no more than the rate's share of it and of SAVED_MS. Taking more than
    there is room for is owed, and waited off.
    """

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self.most = max(1, per_second * SAVED_MS // 1000)
        self._thousandths = self.most * 1000
        self._refilled_ms: int | None = None
        self._is_used_up = False

    def room(self, now_ms: int) -> int:
        """How many may go now; below 0 when more have gone than that."""
        if self._refilled_ms is not None:
            earned = max(0, now_ms - self._refilled_ms) * self._per_second
            self._thousandths = min(self.most * 1000, self._thousandths + earned)
        self._refilled_ms = now_ms
        return self._thousandths // 1000

    def take(self, records: int, now_ms: int) -> None:
        """So many go now."""
        self.room(now_ms)
        self._thousandths -= records * 1000

    def wait_ms(self, now_ms: int) -> int:
        """Until enough may go for a transaction to be worth it; 0 while there is room.

        Once used up, a rate has to earn REFILL_MS' share first.
        """
        worth = min(self.most, max(1, self._per_second * REFILL_MS // 1000))
        room = self.room(now_ms)
        self._is_used_up = room < (worth if self._is_used_up else 1)
        if not self._is_used_up:
            return 0
        return -((self._thousandths - worth * 1000) // self._per_second)


class Unlimited:
    """No cap at all."""

    def room(self, now_ms: int) -> int:  # noqa: ARG002
        """As `RateCap.room`."""
        return 2**31

    def take(self, records: int, now_ms: int) -> None:
        """As `RateCap.take`."""

    def wait_ms(self, now_ms: int) -> int:  # noqa: ARG002
        """As `RateCap.wait_ms`."""
        return 0


class TargetCap:
    """One target's rate: what exceeds it gets the next free place in line.

    A place is booked once. Who comes with one finds up to the rate's share of SAVED_MS more than
    others do, so that a little disorder sends nobody to the end of the line.
    """

    def __init__(self, per_second: int) -> None:
        self._cap = RateCap(per_second)
        self._step_us = -(-1_000_000 // per_second)
        self._booked_us = 0

    def place(self, now_ms: int, *, has_booked: bool) -> int | None:
        """None: it may go now. Else the epoch ms of the place that is booked for it."""
        room = self._cap.room(now_ms)
        may_go = room > -self._cap.most if has_booked else self._is_nobody_waiting(now_ms, room)
        if may_go:
            self._cap.take(1, now_ms)
            return None
        self._booked_us = max(self._booked_us, now_ms * 1000) + self._step_us
        return -(-self._booked_us // 1000)

    def is_idle(self, now_ms: int) -> bool:
        """Whether forgetting it changes nothing."""
        room = self._cap.room(now_ms)
        return room == self._cap.most and self._is_nobody_waiting(now_ms, room)

    def _is_nobody_waiting(self, now_ms: int, room: int) -> bool:
        return room > 0 and self._booked_us <= now_ms * 1000


class _OfTarget(NamedTuple):
    """What counts for one target; `overdue` in the order of the settings."""

    is_paused: bool
    per_second: int | None
    overdue: tuple[OverdueRule, ...]

    @property
    def ends_after_ms(self) -> int | None:
        """Records less late than this are delivered as they are."""
        return min((r.older_than_ms for r in self.overdue if r.action != "deliver"), default=None)


class ReleaseControl:
    """Judges what is due, for one worker. `per_target`: shell pattern -> records a second, for each
    target by itself; the first pattern that fits counts."""

    def __init__(
        self,
        per_target: Mapping[str, int] | None = None,
        overdue: Sequence[OverdueRule] = (),
    ) -> None:
        self._per_target = dict(per_target or {})
        self._overdue = tuple(overdue)
        self._paused: frozenset[str] = frozenset()
        self._known: dict[str, _OfTarget] = {}
        self._caps: dict[str, TargetCap] = {}

    @property
    def paused(self) -> frozenset[str]:
        """Patterns of the targets that are paused."""
        return self._paused

    def pause(self, patterns: Iterable[str]) -> None:
        """From now on these are paused, and no others."""
        now_paused = frozenset(patterns)
        if now_paused != self._paused:
            self._paused = now_paused
            self._known.clear()

    def concerns(self, topics: Iterable[str], batches: Iterable[Batch], now_ms: int) -> bool:
        """Whether a record of the batches, which are for `topics`, may need a judgement."""
        if not (self._paused or self._per_target or self._overdue):
            return False
        ends_after_ms: list[int] = []
        for topic in topics:
            known = self._of(target_of(topic))
            if known.is_paused or known.per_second is not None:
                return True
            if known.ends_after_ms is not None:
                ends_after_ms.append(known.ends_after_ms)
        return bool(ends_after_ms) and now_ms - _oldest_ms(batches, now_ms) > min(ends_after_ms)

    def judge(self, delivery: Delivery, now_ms: int) -> Verdict:
        """What is to become of this record, which is due. Asked once a record and transaction."""
        if delivery.partition == GONE:
            return None
        known = self._of(delivery.target)
        late_ms = now_ms - delivery.due_ms
        for rule in known.overdue:
            if late_ms > rule.older_than_ms:
                if rule.action != "deliver":
                    return _overdue(delivery, rule, late_ms)
                break
        if known.is_paused:
            again_ms = now_ms + min(max(late_ms // 2, SOONEST_AGAIN_MS), LATEST_AGAIN_MS)
            return Hop(delivery, REQUEUED, f"{delivery.target} is paused", again_ms)
        if known.per_second is None:
            return None
        return self._in_line(delivery, known.per_second, now_ms)

    def _in_line(self, delivery: Delivery, per_second: int, now_ms: int) -> Hop | None:
        cap = self._caps.get(delivery.target)
        if cap is None:
            self._forget_idle(now_ms)
            cap = self._caps[delivery.target] = TargetCap(per_second)
        again_ms = cap.place(now_ms, has_booked=delivery.wanted_ms > delivery.due_ms)
        if again_ms is None:
            return None
        detail = f"{delivery.target} takes {per_second} records a second"
        return Hop(delivery, REQUEUED, detail, again_ms)

    def _of(self, target: str) -> _OfTarget:
        known = self._known.get(target)
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[target] = self._read(target)
        return known

    def _read(self, target: str) -> _OfTarget:
        rates = (n for pattern, n in self._per_target.items() if fnmatchcase(target, pattern))
        return _OfTarget(
            any(fnmatchcase(target, pattern) for pattern in self._paused),
            next(rates, None),
            tuple(rule for rule in self._overdue if fnmatchcase(target, rule.targets)),
        )

    def _forget_idle(self, now_ms: int) -> None:
        """Bound what is kept; should all be busy, the newest takes the place of the oldest."""
        if len(self._caps) >= REMEMBERED:
            idle = [target for target, cap in self._caps.items() if cap.is_idle(now_ms)]
            for target in idle or [next(iter(self._caps))]:
                del self._caps[target]


def release_control(settings: ReleaseSettings) -> ReleaseControl:
    """As the settings say; nothing is paused."""
    rules = (OverdueRule(r.targets, r.older_than_ms, r.action) for r in settings.overdue)
    return ReleaseControl(settings.per_target, tuple(rules))


def release_rate(settings: ReleaseSettings) -> RateCap | Unlimited:
    """The cap on all that ends."""
    per_second = settings.max_per_second
    return Unlimited() if per_second is None else RateCap(per_second)


def _oldest_ms(batches: Iterable[Batch], now_ms: int) -> int:
    """The earliest time at which an entry of these was to fire."""
    firsts = (min(batch.deliveries)[0] for batch in batches if batch.deliveries)
    return min(firsts, default=now_ms)


def _overdue(delivery: Delivery, rule: OverdueRule, late_ms: int) -> Rejection | Outcome:
    said = f"{late_ms} ms overdue; {rule.targets} allows {rule.older_than_ms} (release.overdue)"
    if rule.action == "dead-letter":
        return Rejection("overdue", f"the record for {delivery.target} was {said}")
    return Outcome(delivery.offset, EXPIRED, delivery.due_ms, delivery.header(ID), said)
