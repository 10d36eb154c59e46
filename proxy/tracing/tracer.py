"""Makes spans of what was committed, in a thread of its own, and never holds up a delivery."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import structlog
from confluent_kafka import Consumer

from proxy.config.settings import Settings
from proxy.kafka.client_settings import lookup_config
from proxy.kafka.ingress.ingress_lookup import IngressLookup
from proxy.records.message import IngressPartition, Message
from proxy.records.traceparent import TRACEPARENT, TraceParent, read_traceparent
from proxy.scheduling.batch import Batch, ResolvedBatch
from proxy.telemetry.metrics import Metrics, TraceResult
from proxy.tracing.spans import (
    Committed,
    GroupQueue,
    TimerSpan,
    TracedGroup,
    TracedRecord,
    count_of,
    timer_spans,
    traced_groups,
)

MAX_RECORDS: Final = 10_000
MAX_BYTES: Final = 32 * 1024 * 1024
AT_ONCE: Final = 256
GAP: Final = 500
"""So many ingress records are read through rather than jumped over."""
LOOK_S: Final = 0.5
CLOSE_WITHIN_S: Final = 3.0
PAUSE_PER_WORK: Final = 9
"""So many times as long as it works it leaves the interpreter to the loop."""
FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 300.0
"""After a failure. Each leaves some garbage in cycles, which a worker does not collect while its
session lasts."""

log = structlog.get_logger(__name__)


class Lookup(Protocol):
    """Records of the ingress, read again; as `IngressLookup`."""

    def read(self, partition: int, offsets: Sequence[int], gap: int) -> Mapping[int, Message]: ...


class Tracer:
    """Takes what was committed, and exports spans of the records whose producers sample them.

    `export` gives why it has failed, or None; `count` is told what became of records.
    """

    def __init__(
        self,
        lookup: Lookup,
        export: Callable[[Sequence[TimerSpan]], str | None],
        count: Callable[[TraceResult, int], None],
        max_records: int = MAX_RECORDS,
    ) -> None:
        self._lookup, self._export, self._count = lookup, export, count
        self._queue = GroupQueue(max_records, MAX_BYTES)
        self._stop = threading.Event()
        self._pause_s = 0.0

    def committed(
        self, batches: Sequence[Batch | ResolvedBatch], took_s: float, now_ms: int
    ) -> None:
        """A transaction of these is committed, after so long. Called by the worker's loop."""
        committed = Committed(now_ms - int(took_s * 1_000), now_ms)
        for batch in batches:
            for group in traced_groups(batch, committed):
                if dropped := self._queue.put(group):
                    self._count("dropped", dropped)

    def run(self) -> None:
        """The thread: until stopped, and once more then."""
        while not self._stop.is_set():
            began_s = time.thread_time()
            self.export_next(LOOK_S)
            worked_s = time.thread_time() - began_s
            self._stop.wait(max(self._pause_s, worked_s * PAUSE_PER_WORK))
        self.export_next(0)

    def stop(self) -> None:
        """What is being exported is the last."""
        self._stop.set()

    def export_next(self, timeout_s: float) -> None:
        """The spans of the next records, after a wait of at most `timeout_s` for one."""
        taken = self._queue.take(AT_ONCE, timeout_s)
        records = count_of(taken)
        try:
            sampled = self._sampled(taken)
            records = len(sampled)
            spans, records = self._spans(sampled)
            why = self._export(spans) if spans else None
        except Exception as error:  # noqa: BLE001 (tracing must not end: delivery goes on)
            why = repr(error)
        self._count("exported" if why is None else "failed", records)
        if why is not None:
            self._pause_s = min(max(FIRST_PAUSE_S, 2 * self._pause_s), LONGEST_PAUSE_S)
            log.warning("spans not exported", records=records, why=why, pause_s=self._pause_s)
        elif records:
            self._pause_s = 0.0

    def _sampled(self, groups: Sequence[TracedGroup]) -> list[tuple[TracedRecord, TraceParent]]:
        found = []
        for traced in (one for group in groups for one in group.unpacked()):
            parent = read_traceparent(traced.header(TRACEPARENT))
            if parent is None:
                self._count("invalid", 1)
            elif parent.is_sampled:
                found.append((traced, parent))
        return found

    def _spans(
        self, sampled: Sequence[tuple[TracedRecord, TraceParent]]
    ) -> tuple[list[TimerSpan], int]:
        """The spans, and of how many records; some may be gone from the ingress."""
        times = self._written_ms([traced for traced, _ in sampled])
        found = [
            (traced, parent, written_ms)
            for traced, parent in sampled
            if (written_ms := times.get((traced.ingress, traced.offset))) is not None
        ]
        if len(found) < len(sampled):
            self._count("deleted", len(sampled) - len(found))
        return [span for one in found for span in timer_spans(*one)], len(found)

    def _written_ms(
        self, records: Sequence[TracedRecord]
    ) -> dict[tuple[IngressPartition, int], int]:
        """When each was written, by the ingress: the schedule does not keep that."""
        offsets: dict[IngressPartition, set[int]] = defaultdict(set)
        for traced in records:
            offsets[traced.ingress].add(traced.offset)
        return {
            (ingress, offset): message.timestamp()[1]
            for ingress, wanted in offsets.items()
            for offset, message in self._lookup.read(ingress.number, sorted(wanted), GAP).items()
        }


@contextmanager
def open_tracer(settings: Settings, metrics: Metrics) -> Iterator[Tracer | None]:
    """A tracer that runs while the worker does; None where the settings ask for none."""
    if not settings.tracing.enabled:
        yield None
        return
    from proxy.tracing.otlp_export import OtlpExport

    exporter = OtlpExport()
    lookup = IngressLookup(
        lambda: Consumer(lookup_config(settings)), settings.topics.ingress, heartbeat=lambda: None
    )
    tracer = Tracer(lookup, exporter.export, metrics.count_traced)
    thread = threading.Thread(target=tracer.run, name="tracing", daemon=True)
    thread.start()
    try:
        yield tracer
    finally:
        tracer.stop()
        thread.join(CLOSE_WITHIN_S)
        exporter.close()
