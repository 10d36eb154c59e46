"""Decides about each record that is due: delivered, tried again later, or a dead letter.

What depends on the broker is judged here, when the record fires, and not at ingest (DESIGN 5.3,
5.9). Nothing that has to wait holds up the others: it goes on through the ingress.
"""

from __future__ import annotations

from typing import Final

import structlog

from proxy.publishing.hops import failures
from proxy.publishing.record_writer import Sending, stamped
from proxy.publishing.refusals import Lessons, Place
from proxy.publishing.release_control import ReleaseControl, Verdict
from proxy.publishing.targets import NONE, Targets
from proxy.records.dead_letter import DeadLetter, dead_letter_of
from proxy.records.delivery import Delivery, delivery_of
from proxy.records.headers import HOP_ATTEMPT
from proxy.records.ingress_partition import IngressPartition
from proxy.records.outcome import REQUEUED, ROLLED, Outcome
from proxy.records.rejection import Rejection
from proxy.requests.policy import RetryGroup
from proxy.scheduling.auxiliary_record import AuxiliaryRecord, place_of_auxiliary
from proxy.scheduling.batch import Batch, Hop, ResolvedBatch

TRANSIENT: Final = frozenset({"target-unknown", "not-authorised"})
"""An operator can mend these: they are tried again at the retry levels."""

log = structlog.get_logger(__name__)


class Settling:
    """Settles the batches of one transaction; made anew for each, kept for its attempts."""

    def __init__(
        self,
        targets: Targets,
        sending: Sending,
        lessons: Lessons,
        retry: RetryGroup,
        release: ReleaseControl,
        now_ms: int,
    ) -> None:
        self._targets, self._sending, self._lessons = targets, sending, lessons
        self._retry, self._now_ms = retry, now_ms
        self._release = release
        self._judged: dict[Place, Verdict] = {}
        self._hopped: dict[Place, Rejection | None] = {}

    def settle(self, batch: Batch) -> ResolvedBatch:
        """Each delivery to where it belongs now."""
        kept: list[Delivery] = []
        hops: list[Hop] = []
        dead: list[DeadLetter] = []
        outcomes = list(batch.outcomes)
        for delivery in map(delivery_of, batch.deliveries):
            end = self._end(batch.ingress.prefix, delivery)
            if end is None:
                kept.append(delivery)
            elif isinstance(end, Hop):
                hops.append(end)
                place = batch.ingress.prefix, delivery.offset
                self._hopped.setdefault(place, self._lessons.refused.get(place))
            elif isinstance(end, Outcome):
                outcomes.append(end)
            else:
                dead.append(dead_letter_of(delivery, end))
        auxiliary = [one for one in batch.auxiliary if self._can_be_written(batch.ingress, one)]
        dead_letters = [*batch.dead_letters, *dead]
        return ResolvedBatch(batch.ingress, kept, dead_letters, outcomes, auxiliary, hops)

    def _end(self, origin: str, delivery: Delivery) -> Verdict:
        """Why this is not to be delivered now, and what is to become of it; else None."""
        place = origin, delivery.offset
        refused = self._lessons.refused.get(place)
        if refused is not None:
            has_hop_failed = self._hopped.get(place, refused) is not refused
            return refused if has_hop_failed else self._failed(delivery, refused)
        if delivery.fires_ms < delivery.wanted_ms:
            return Hop(delivery, ROLLED)
        if place not in self._judged:
            self._judged[place] = self._release.judge(delivery, self._now_ms)
        if (verdict := self._judged[place]) is not None:
            return verdict
        if not delivery.partition < self._targets.partitions.get(delivery.target, NONE):
            return self._failed(
                delivery, self._targets.why_not(delivery.target, delivery.partition)
            )
        if delivery.target in self._targets.rules:
            return self._against_rules(origin, delivery)
        return None

    def _failed(self, delivery: Delivery, reason: Rejection) -> Hop | Rejection:
        """A later attempt at the retry levels, or the end when there have been enough."""
        failed = failures(delivery.header(HOP_ATTEMPT)) + 1
        if reason.code not in TRANSIENT or failed >= self._retry.max_attempts:
            return reason
        delays_ms = self._retry.delays_ms
        again_ms = self._now_ms + delays_ms[min(failed - 1, len(delays_ms) - 1)]
        detail = f"{reason.code}: {reason.detail}; attempt {failed} of {self._retry.max_attempts}"
        return Hop(delivery, REQUEUED, detail, again_ms, failed)

    def _against_rules(self, origin: str, delivery: Delivery) -> Rejection | None:
        target = delivery.target
        rules = self._targets.rules[target]
        if rules.needs_key and delivery.key is None:
            why = f"the topic {target} is compacted: its records need a key"
            return Rejection("publish-failed", why)
        size_bytes = self._sending.exceeding_bytes(
            target, delivery.key, delivery.value, stamped(origin, delivery)
        )
        if size_bytes is None:
            return None
        return Rejection(
            "too-large",
            f"the record takes {size_bytes} bytes, the topic {target} allows "
            f"{rules.batch_bytes} (max.message.bytes)",
        )

    def _can_be_written(self, ingress: IngressPartition, record: AuxiliaryRecord) -> bool:
        """A check-back that cannot be written is left out: the next one follows.

        What the proxy writes to its own ingress is not: nothing follows that.
        """
        refused = self._lessons.refused.get(place_of_auxiliary(ingress, record))
        if record.topic == ingress.topic:
            return True
        if refused is None and self._targets.partitions.get(record.topic, NONE) != NONE:
            return True
        why = refused or self._targets.refusal_of(record.topic)
        log.warning("check-back not written", topic=record.topic, why=why.detail if why else "")
        return False
