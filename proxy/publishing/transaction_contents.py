"""What one transaction is to write, and what has been learnt about it from attempts aborted."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.dispatch.dispatcher import Dispatcher, asked_about
from proxy.dispatch.outgoing_records import OutgoingRecords
from proxy.dispatch.refusals import Refusals
from proxy.publishing.record_writer import RecordWriter
from proxy.publishing.targets import Targets
from proxy.publishing.tracked_sender import TrackedSender
from proxy.records.entry import target_of
from proxy.scheduling.batch import Batch, ResolvedBatch


class TransactionContents:
    """Writes the batches of one transaction, as often as it is made.

    First without delivery reports, which cost more than the records; made again, with them, so
    that each record that the broker refuses is known and can end as a dead letter, and the others
    are not held up.
    """

    def __init__(
        self,
        batches: Sequence[Batch],
        targets: Targets,
        writer: RecordWriter,
        dispatcher: Dispatcher,
        records: OutgoingRecords,
        refusals: Refusals,
    ) -> None:
        self._batches = batches
        self._targets, self._writer = targets, writer
        self._dispatcher, self._records, self._refusals = dispatcher, records, refusals
        self._topics = {entry[2] for batch in batches for entry in batch.deliveries}

    def look_up(self, now_ms: int) -> None:
        """Ask the broker about topics of which nothing is known, or too little."""
        self._targets.learn(asked_about(self._topics, self._batches), now_ms)
        self._targets.learn_rules(self._refusals.limited)

    def write(self, *, is_again: bool) -> Sequence[Batch | ResolvedBatch]:
        """Produce everything into the open transaction; gives the batches as they were written.

        Raises KafkaException or NotFlushed when the transaction cannot go on.
        """
        is_tracked = is_again or not self._topics.isdisjoint(self._targets.known.rules)
        if not is_tracked and not self._dispatcher.is_needed(self._topics, self._batches):
            return self._write_as_planned()
        return self._write_resolved(is_tracked=is_tracked)

    def learn(self) -> int:
        """After an abort: how many records have taught something for the next time."""
        learnt = self._refusals.learn()
        self._targets.forget(set(map(target_of, self._topics)))
        return learnt

    def _write_as_planned(self) -> Sequence[Batch]:
        for batch in self._batches:
            self._writer.deliver(batch)
            for record in self._records.beside_deliveries(batch):
                self._writer.produce(record)
        return self._batches

    def _write_resolved(self, *, is_tracked: bool) -> Sequence[ResolvedBatch]:
        writer, rules = self._writer, self._targets.known.rules
        tracked = TrackedSender(writer.produce, writer.flush, rules, self._refusals)
        send = tracked.send if is_tracked else writer.produce
        resolved = [self._dispatcher.resolve(batch) for batch in self._batches]
        for batch in resolved:
            for record in self._records.deliveries(batch):
                send(record)
            for record in self._records.beside_deliveries(batch):
                send(record)
        return resolved
