"""Writes the demo's records to the ingress, and reads all that comes of them."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message

from proxy.cli.kafka.arrivals import open_consumer
from proxy.cli.kafka.ingress_record import IngressRecord, recall_of
from proxy.cli.kafka.ingress_writer import ingress_producer, origin_of
from proxy.cli.trial.demo.evidence import Arrival, Evidence, Sent
from proxy.cli.trial.demo.group_result import GroupResult, group_results
from proxy.cli.trial.demo.plan import Step, Wanted
from proxy.cli.trial.demo.stories import CHECKS, TARGETS
from proxy.config.settings import Settings
from proxy.dead_letters.letters.letter import read_origin
from proxy.errors import ProxyError
from proxy.kafka.access.broker_errors import explain

SEED = 20_261_121
PATIENCE_S = 30.0


class DemoFailed(ProxyError):
    """The demo could not be played to its end."""


class Traffic:
    """`plan` says what is sent and what must come of it; `sent` has the receipts by ident."""

    def __init__(self, settings: Settings, plan: Sequence[Wanted], reader: Consumer) -> None:
        self.plan = list(plan)
        self.sent: dict[str, Sent] = {}
        self.evidence = Evidence(settings.topics, CHECKS)
        self._settings, self._reader = settings, reader
        self._producer = ingress_producer(settings)

    @classmethod
    @contextmanager
    def opened(cls, settings: Settings, plan: Sequence[Wanted]) -> Iterator[Self]:
        """With a reader that sees all from here on."""
        own = settings.topics
        read = [*TARGETS, CHECKS, own.dead_letters, own.outcomes, own.ingress]
        with closing(open_consumer(settings, *read, from_beginning=True)) as reader:
            yield cls(settings, plan, reader)

    def send(self, step: Step) -> int:
        """Write the records of a step, in random order, and wait for the broker's receipts; how
        many there were. Raises DemoFailed."""
        records = [wanted for wanted in self.plan if wanted.step is step]
        random.Random(SEED).shuffle(records)
        for wanted in records:
            record = self._record(wanted)
            self._producer.produce(
                self._settings.topics.ingress,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=record.partition,
                on_delivery=_receipt(wanted, self.sent, self._settings),
            )
        self._producer.flush(PATIENCE_S)
        if missing := [wanted for wanted in records if wanted.ident not in self.sent]:
            raise DemoFailed(f"The broker took all but {len(missing)} of {len(records)} records.")
        return len(records)

    def group(self, name: str) -> list[Wanted]:
        """The records of one group."""
        return [wanted for wanted in self.plan if wanted.group == name]

    def is_due_at(self, group: str, due_ms: int) -> None:
        """From now on its records must come then, and not before."""
        self.plan = [
            replace(one, due_ms=due_ms) if one.group == group else one for one in self.plan
        ]

    def arrived(self, group: str) -> list[Arrival]:
        """What was seen of a group."""
        idents = {one.ident for one in self.group(group)}
        return [one for one in self.evidence.arrivals if one.ident in idents]

    def read_arrivals(self, idents: Sequence[str]) -> None:
        """Read until these have arrived, or have had their time."""
        self.read_until(
            time.monotonic() + PATIENCE_S,
            lambda: set(idents) <= {one.ident for one in self.evidence.arrivals},
        )

    def read_until(self, end_monotonic: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Read on until then, or until it is over."""
        while (left_s := end_monotonic - time.monotonic()) > 0 and not is_over():
            message = self._reader.poll(min(left_s, 0.2))
            if message is not None and message.error() is None:
                self.evidence.note(message)

    def results(self) -> dict[str, GroupResult]:
        """What has come of each group so far."""
        return group_results(self.plan, self.sent, self.evidence)

    def _record(self, wanted: Wanted) -> IngressRecord:
        """As it is written: a recall names the receipt of what it takes back, and has its key."""
        if wanted.recalls is None:
            return IngressRecord(wanted.all_headers, wanted.key, wanted.value)
        origin = read_origin(self.sent[wanted.recalls].origin)
        assert origin is not None, wanted
        return recall_of(origin, next(one.key for one in self.plan if one.ident == wanted.recalls))


def _receipt(wanted: Wanted, sent: dict[str, Sent], settings: Settings) -> Any:
    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise explain(error, settings)
        sent[wanted.ident] = Sent(origin_of(message), message.timestamp()[1])

    return note
