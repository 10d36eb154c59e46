"""The audit to make, and the inputs with which an audit can be repeated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError

from spark_jobs.audit_scope import NO_LIMITS, LatenessLimits
from spark_jobs.kafka.broker import Broker, KafkaSettings
from spark_jobs.kafka.snapshot import CommittedState, OwnTopics, Snapshot, settings_topic
from spark_jobs.records.hashes import HopKeys
from spark_jobs.runtime.errors import NotOurs, RangeRefused, ResultsRefused
from spark_jobs.runtime.frames import Location


class TableHash(NamedTuple):
    """The number of an audit's rows in a table, and the sum of their hashes."""

    rows: int
    hash: str


@dataclass(frozen=True, slots=True)
class RepeatInputs:
    """All inputs needed to repeat an audit, besides records and secrets: `repeat.json`."""

    audit: str
    made_by: str
    spark: str
    bootstrap: str
    group: str
    committed: CommittedState
    taken: Snapshot
    at_ms: int
    limits: LatenessLimits
    goes_on_from: str | None
    """The audit whose open records this audit took over, or None."""
    tables: Mapping[str, TableHash]
    settled_only: bool = False
    version: Literal[2] = 2

    def to_json(self) -> dict[str, Any]:
        bare = replace(self.committed, hop_keys=HopKeys(self.committed.topic_id, {}))
        found: dict[str, Any] = _ADAPTER.dump_python(replace(self, committed=bare), mode="json")
        return found

    def committed_today(self, broker: Broker) -> CommittedState:
        """Return the committed state of the earlier audit, with secrets read from the topic now.
        Raises `NotOurs` if a topic was recreated since, `RangeRefused` if records were deleted.
        """
        own, taken = self.committed.own, self.taken
        then = {own.ingress: taken.topic_id, **taken.topic_ids}
        now = broker.topic_ids([*then])
        for topic, topic_id in then.items():
            if now.get(topic) != topic_id:
                raise NotOurs(
                    f"The topic {topic} was deleted or created anew since that audit.",
                    "That audit cannot be repeated.",
                )
        read = [*taken.ingress_ranges, *taken.end_ranges]
        starts = broker.log_starts([one.place for one in read])
        for one in read:
            if one.start < min(one.end, starts[one.place]):
                raise RangeRefused(
                    f"{one.topic}, partition {one.partition}: retention has deleted records since "
                    f"that audit, which read from {one.start}; the first one left is "
                    f"{starts[one.place]}.",
                    "That audit cannot be repeated. Audit the remaining records.",
                )
        count = broker.topics()[own.settings]
        held = settings_topic(broker, own, self.group, taken.topic_id, count)
        return replace(self.committed, hop_keys=HopKeys(taken.topic_id, held.hop_secrets))


_ADAPTER: Final = TypeAdapter(RepeatInputs)


def read_repeat_inputs(text: str) -> RepeatInputs:
    """Parse a `repeat.json`. Raises `ResultsRefused`."""
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        raise ResultsRefused(
            f"This is not the repeat.json of an audit: {str(error).splitlines()[0]}.",
            "Name a repeat.json that an audit of this version wrote.",
        ) from None


def check_same_tables(then: RepeatInputs, now: RepeatInputs) -> None:
    """Raise `ResultsRefused` if a repeated audit wrote other rows."""
    for name, found in then.tables.items():
        if now.tables[name] != found:
            raise ResultsRefused(
                f"The repeated audit has another result: {name} had {found.rows} rows with the "
                f"hash {found.hash}, and {now.tables[name].rows} with {now.tables[name].hash} now.",
                f"Compare the rows of {then.audit} and {now.audit}.",
            )


@dataclass(frozen=True, slots=True)
class AuditJob:
    """The audit to make, and where its results go."""

    kafka: KafkaSettings
    group: str
    own: OwnTopics
    targets: Sequence[str]
    """Target topics. If this is empty, all targets that ingress records name."""
    output: Location
    continue_from: Location | None = None
    """The location of the audit to continue. Records that it read are not read again."""
    limits: LatenessLimits = NO_LIMITS
    again: RepeatInputs | None = None
    settled_only: bool = False
    """Judge only records that have ended according to the committed position (`audit --follow`)."""
    most: int | None = None
    """Largest number of records to read at a time. If more are unread, all are judged after the
    last portion."""

    def as_in(self, then: RepeatInputs) -> "AuditJob":
        """Return the job that repeats `then`.
        Raises `RangeRefused` if `then` continued an audit and `continue_from` is None.
        """
        if then.goes_on_from and not self.continue_from:
            raise RangeRefused(
                f"That audit continued {then.goes_on_from}.",
                "Name its place in --continue-from.",
            )
        return replace(
            self,
            group=then.group,
            own=then.committed.own,
            targets=[*then.taken.topic_ids],
            continue_from=self.continue_from if then.goes_on_from else None,
            limits=then.limits,
            again=then,
            settled_only=then.settled_only,
        )
