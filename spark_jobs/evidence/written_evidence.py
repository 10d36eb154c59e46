"""What an audit judged by beside the records themselves, written down: `evidence.json`.

With it, and as long as the topics hold the records, the audit can be made again: the same ranges,
positions, settings and instant give the same verdicts. Secrets are not in it: who may hop is asked
of the settings topic.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from spark_jobs.circumstances.lateness_limits import LatenessLimits
from spark_jobs.kafka.broker import Broker, Place
from spark_jobs.kafka.committed import settings_held
from spark_jobs.kafka.positions import Range, Snapshot
from spark_jobs.kafka.snapshot import CommittedState
from spark_jobs.records.hop_macs import HopKeys
from spark_jobs.runtime.errors import NotOurs, RangeRefused, ResultsRefused

VERSION: Final = 1


class TableHash(NamedTuple):
    """Of the rows of one audit: how many, and the sum of their hashes, whatever their order."""

    rows: int
    hash: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """audit: its name; made_by: the version of this package; spark: of Spark. goes_on_from: the
    audit whose open records it began with. tables: by name, what it found. settled_only: as in
    `Circumstances`."""

    version: int
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
    tables: Mapping[str, TableHash]
    settled_only: bool = False

    def to_json(self) -> dict[str, Any]:
        """As the file has it."""
        bare = replace(self.committed, hop_keys=HopKeys(self.committed.topic_id, {}))
        told: dict[str, Any] = _ADAPTER.dump_python(replace(self, committed=bare), mode="json")
        return told

    def committed_today(self, broker: Broker) -> CommittedState:
        """What was committed then, with the secrets of the settings topic.

        Raises `NotOurs` where a topic was created anew since, `RangeRefused` where records were
        deleted."""
        own, taken = self.committed.own, self.taken
        topics = {own.ingress: taken.topic_id, **taken.topic_ids}
        there = {**broker.topic_ids([*taken.topic_ids]), own.ingress: broker.topic_id(own.ingress)}
        for topic, topic_id in topics.items():
            if there.get(topic) != topic_id:
                raise NotOurs(
                    f"The topic {topic} was deleted or created anew since that audit.",
                    "It cannot be made again.",
                )
        _check_held(broker, [*taken.ingress_ranges, *taken.end_ranges])
        secrets = HopKeys(taken.topic_id, settings_held(broker, own.settings).hop_secrets)
        return replace(self.committed, hop_keys=secrets)


_ADAPTER: Final = TypeAdapter(Evidence)


def read_evidence(text: str) -> Evidence:
    """Of the text of an `evidence.json`; raises `ResultsRefused`."""
    try:
        found = _ADAPTER.validate_python(json.loads(text))
        if found.version != VERSION:
            raise ValueError(f"version {found.version} is not {VERSION}")
    except (ValueError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise ResultsRefused(
            f"That is no evidence of an audit: {first}.",
            "Name an evidence.json that an audit of this version wrote.",
        ) from None
    return found


def _check_held(broker: Broker, ranges: Iterable[Range]) -> None:
    asked = [one for one in ranges if one.start < one.end]
    places: list[Place] = [(one.topic, one.partition) for one in asked]
    starts = broker.log_starts(places)
    for one, place in zip(asked, places, strict=True):
        if starts[place] > one.start:
            raise RangeRefused(
                f"{one.topic}, partition {one.partition}: retention has deleted records since that "
                f"audit, which read from {one.start}; the first one left is {starts[place]}.",
                "It cannot be made again; audit what is left.",
            )


def check_same_tables(then: Evidence, now: Evidence) -> None:
    """Raises `ResultsRefused` where an audit that was made again found something else."""
    for name, found in then.tables.items():
        if now.tables[name] != found:
            raise ResultsRefused(
                f"Made again, the audit came out otherwise: {name} had {found.rows} rows with the "
                f"hash {found.hash}, and {now.tables[name].rows} with {now.tables[name].hash} now.",
                f"Compare the rows of {then.audit} and {now.audit}.",
            )
