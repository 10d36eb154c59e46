"""Topics of an example: the real proxy's work on the stand-in, and the story's changes."""

from __future__ import annotations

import json
from typing import Any, Final

from proxy.protocol.policy import Policy
from spark_jobs.kafka.snapshot import Committed
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import INGRESS, Record
from tests.support.simulation.world import World
from tools.campaign.contents import Contents, Held, Moment
from tools.campaign.played_run import KnownSettingsTopic
from tools.campaign.scene import HOP_KEY, MOMENTS_MS, OWN, SIGNER, TOPIC_ID

AUDITED_MS: Final = START_MS + 600_000
SECOND_MS: Final = 1_000
PARTITIONS: Final = 4


class ExampleTopics:
    """One ingress partition, and the targets of its records.

    `notes`: remarks for the page, by record. `lost`: records that the proxy wrote and that are
    missing.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.notes: dict[int, str] = {}
        self.lost: list[Record] = []
        self.is_stopped = False
        self.world = World(partitions=1, targets=())
        self.world.kafka.first_partition = number
        self.world.kafka.is_partitioning = True
        self._settings = KnownSettingsTopic(self.world.kafka)
        self.world.policies, self.world.topic_id = self._settings, TOPIC_ID
        self.set_policy()

    def set_policy(self, **settings: Any) -> None:
        self.world.policy = Policy(hop_key=HOP_KEY.digest, **settings)

    def create(self, topic: str, partitions: int = PARTITIONS) -> None:
        self.world.kafka.topics[topic] = partitions

    def write(self, key: str, value: str, /, **headers: str) -> Record:
        """Write a producer's record to the ingress. `timer_topic` stands for `timer-topic`."""
        named = {name.replace("_", "-"): told.encode() for name, told in headers.items()}
        target = headers.get("timer_topic")
        if target and target not in self.world.kafka.topics:
            self.create(target)
        return self.world.kafka.append(
            INGRESS, self.number, key.encode(), value.encode(), [*named.items()]
        )

    def write_cancelled(self, key: str, value: str, /, **headers: str) -> Record:
        asked = self.write(key, value, **headers, timer_id=key)
        self.wait(3)
        self.write(key, "", timer_cancel=key)
        self.wait(20)
        self.note(self.outcome(asked), "taken back in time")
        return asked

    def purge(self, pattern: str) -> Record:
        headers = SIGNER.signed(self.number, None, None, [("timer-purge", pattern.encode())])
        return self.world.kafka.append(INGRESS, self.number, None, None, [*headers])

    def move(self, offset: int, deliver_at_ms: int) -> None:
        self.world.moving(self.number, offset, deliver_at_ms)()

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            if not self.is_stopped:
                self.world.settle()
            self.world.time.pass_ms(SECOND_MS)
        if not self.is_stopped:
            self.world.settle()

    def stop(self) -> None:
        self.world.settle()
        self.world.crash()
        self.is_stopped = True

    def start(self) -> None:
        self.is_stopped = False

    def end(self) -> None:
        self.world.time.pass_ms(AUDITED_MS - self.world.time.broker_now_ms)
        if not self.is_stopped:
            self.world.settle()
        self.world.crash()

    def all(self, topic: str) -> list[Record]:
        return self.world.kafka.read(topic)

    def only(self, topic: str) -> Record:
        (found,) = self.all(topic)
        return found

    def outcome(self, of: Record) -> Record:
        origin = f"{INGRESS}/{self.number}/{of.offset_}".encode()
        return next(one for one in self.all(OWN.outcomes) if one.key_ == origin)

    def unsay(self, of: Record) -> None:
        """Remove the outcome of an ingress record. Later outcomes move up."""
        self.unwrite(self.outcome(of))

    def lose(self, record: Record, note: str) -> None:
        """Delete the record, and keep its offset."""
        self._forget(record)
        self.lost.append(record)
        self.note(record, note)

    def unwrite(self, record: Record) -> None:
        """Remove the record. Later records move up."""
        self._forget(record)
        for offset, one in enumerate(self.world.kafka.logs[record.topic_, record.partition_]):
            one.offset_ = offset

    def _forget(self, record: Record) -> None:
        log = self.world.kafka.logs[record.topic_, record.partition_]
        log[:] = [one for one in log if one is not record]

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        at_ms: int,
    ) -> Record:
        log = self.world.kafka.logs[topic, partition]
        offset = log[-1].offset_ + 1 if log else 0
        record = Record(topic, partition, offset, key, value, headers, at_ms)
        log.append(record)
        return record

    def copy(self, record: Record, after_ms: int = 0) -> Record:
        return self.append(
            record.topic_,
            record.partition_,
            record.key_,
            record.value_,
            [*record.headers_],
            record.timestamp_ms + after_ms,
        )

    def delivery(self, of: Record, topic: str, partition: int, due_ms: int, at_ms: int) -> Record:
        """Append a delivery that the proxy did not write, in its form."""
        users = [(name, told) for name, told in of.headers_ if not name.startswith("timer-")]
        stamps = [("timer-origin", self.origin(of)), ("timer-due", str(due_ms).encode())]
        return self.append(topic, partition, of.key_, of.value_, [*users, *stamps], at_ms)

    def say(self, of: Record, outcome: str, detail: str, due_ms: int | None, at_ms: int) -> Record:
        """Append an outcome that the proxy did not write, in its form."""
        origin = self.origin(of)
        fields = {"origin": origin.decode(), "outcome": outcome, "due": due_ms}
        told = json.dumps({**fields, "id": None, "detail": detail}, separators=(",", ":"))
        return self.append(OWN.outcomes, 0, origin, told.encode(), [], at_ms)

    def letter(self, of: Record, code: str, detail: str, due_ms: int, at_ms: int) -> Record:
        self.say(of, "dead-lettered", f"{code}: {detail}", due_ms, at_ms)
        return self.letter_alone(of, code, detail, at_ms)

    def letter_alone(self, of: Record, code: str, detail: str, at_ms: int) -> Record:
        reason = {"timer-error": code, "timer-error-detail": detail}
        stamps = [(name, told.encode()) for name, told in reason.items()]
        headers = [*of.headers_, *stamps, ("timer-origin", self.origin(of))]
        return self.append(OWN.dead_letters, 0, of.key_, of.value_, headers, at_ms)

    def origin(self, of: Record) -> bytes:
        return f"{INGRESS}/{self.number}/{of.offset_}".encode()

    def note(self, record: Record, text: str) -> None:
        self.notes[id(record)] = text

    def records(self) -> list[Record]:
        logs = self.world.kafka.logs
        there = [one for (topic, _), log in logs.items() if topic != OWN.settings for one in log]
        return sorted([*there, *self.lost], key=lambda one: (one.timestamp_ms, _rank(one)))

    def contents(self) -> Contents:
        logs = self.world.kafka.logs
        held = [
            _held(one) for (topic, _), log in logs.items() if topic != OWN.settings for one in log
        ]
        ingress = [one for one in held if one.topic == INGRESS]
        others = [one for one in held if one.topic != INGRESS]
        counts = {**self.world.kafka.topics, **dict.fromkeys(OWN.all, 1)}
        moments = [self._moment()] * len(MOMENTS_MS)
        return Contents(self.number, ingress, others, moments, self._settings.texts(), counts)

    def _moment(self) -> Moment:
        number = self.number
        stood = Committed.from_metadata(number, *self.world.kafka.committed[number])
        served = {number: tuple(self._settings.served[number].policies)}
        log = self.world.kafka.logs[INGRESS, number]
        ends = {number: max(log[-1].offset_ + 1, stood.next_offset or 0)}
        return Moment(AUDITED_MS, {number: stood}, ends, served)


def _rank(record: Record) -> tuple[int, str, int, int]:
    return (
        0 if record.topic_ == INGRESS else 1,
        record.topic_,
        record.partition_,
        record.offset_,
    )


def _held(record: Record) -> Held:
    return Held(
        record.topic_,
        record.partition_,
        record.offset_,
        record.timestamp_ms,
        record.key_,
        record.value_,
        record.headers_,
        0,
    )
