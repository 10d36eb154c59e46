"""What the demo reads, read_committed, from all topics that matter: the evidence."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Message

from proxy.cli.kafka.record_headers import headers_of
from proxy.cli.trial.demo.plan import DEMO_ID
from proxy.clock import wall_clock_ms
from proxy.config.settings import TopicSettings
from proxy.records.body import Headers
from proxy.records.headers import HOP_FROM
from proxy.records.outcome import read_outcome


class Sent(NamedTuple):
    """The broker's receipt of an ingress record."""

    origin: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record read from a target, from the dead letters or from the check-back topic.

    `appended_ms` is the broker's own timestamp, `seen_ms` the reader's clock.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    appended_ms: int
    seen_ms: int

    @property
    def ident(self) -> str:
        """Of the record of the plan that this is."""
        return (self.header(DEMO_ID) or b"?").decode()

    def header(self, name: str) -> bytes | None:
        """The last header of that name."""
        return dict(self.headers).get(name)


@dataclass(slots=True)
class Evidence:
    """All that was read so far, sorted by what it is; outcomes as (origin, outcome)."""

    topics: TopicSettings
    checks_topic: str
    arrivals: list[Arrival] = field(default_factory=list)
    checks: list[Arrival] = field(default_factory=list)
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    _roots: dict[str, str] = field(default_factory=dict)

    def note(self, message: Message) -> None:
        """Take in one record."""
        topic = message.topic()
        if topic == self.topics.outcomes:
            outcome = read_outcome(message.value()) or {"origin": "?", "outcome": "unreadable"}
            self.outcomes.append((outcome["origin"], outcome["outcome"]))
        elif topic == self.topics.ingress:
            self._note_ingress(message)
        else:
            (self.checks if topic == self.checks_topic else self.arrivals).append(_arrival(message))

    def ends_by_root(self) -> Mapping[str, list[str]]:
        """Outcomes by the record that was sent, those of its successors included."""
        ends: defaultdict[str, list[str]] = defaultdict(list)
        for origin, outcome in self.outcomes:
            ends[self._roots.get(origin, origin)].append(outcome)
        return ends

    def _note_ingress(self, message: Message) -> None:
        """A successor lies in the partition of the record that it goes on from, behind it."""
        hop_from = dict(headers_of(message)).get(HOP_FROM)
        if hop_from is None:
            return
        partition = f"{message.topic()}/{message.partition()}"
        parent = f"{partition}/{hop_from.decode()}"
        self._roots[f"{partition}/{message.offset()}"] = self._roots.get(parent, parent)


def _arrival(message: Message) -> Arrival:
    return Arrival(
        str(message.topic()),
        message.key(),
        message.value(),
        headers_of(message),
        message.timestamp()[1],
        wall_clock_ms(),
    )
