"""What an audit leaves to one that goes on from it: how far it read, and what it left open.

In the folder `open` of its results: requests/ and ends/ (Parquet), and positions.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.kafka.broker import Place
from spark_jobs.results.results_folder import SUMMARY
from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.schemas import ENDS, REQUESTS
from spark_jobs.runtime.tables import read_table, spark_path
from spark_jobs.verdicts.carry_over import open_ends, open_requests

OPEN: Final = "open"
POSITIONS: Final = "positions.json"
VERSION: Final = 1


class Span(NamedTuple):
    """Offsets of an ingress partition: [read_from, closed_to) is done, but for what is open."""

    read_from: int
    closed_to: int


@dataclass(frozen=True, slots=True)
class ReadSoFar:
    """How far the audits of one installation have read. ends: the first offset not read yet of
    each partition of targets, dead letters and outcomes."""

    ingress_topic: str
    topic_id: str
    group: str
    ingress: Mapping[int, Span]
    ends: Mapping[Place, int]

    def closed(self, ingress_topic: str) -> dict[Place, int]:
        """From where on each ingress partition is to be read."""
        return {(ingress_topic, number): span.closed_to for number, span in self.ingress.items()}

    @property
    def topics(self) -> set[str]:
        """All targets, and the topics of dead letters and outcomes."""
        return {topic for topic, _ in self.ends}

    def to_json(self) -> dict[str, Any]:
        """As `positions.json` has it."""
        return {
            "version": VERSION,
            "ingress_topic": self.ingress_topic,
            "topic_id": self.topic_id,
            "group": self.group,
            "ingress": [[number, *span] for number, span in self.ingress.items()],
            "ends": [[*place, end] for place, end in self.ends.items()],
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> ReadSoFar:
        """Raises KeyError, TypeError or ValueError for anything else."""
        if said["version"] != VERSION:
            raise ValueError(f"version {said['version']} is not {VERSION}")
        return cls(
            str(said["ingress_topic"]),
            str(said["topic_id"]),
            str(said["group"]),
            {int(number): Span(int(start), int(end)) for number, start, end in said["ingress"]},
            {(str(topic), int(number)): int(end) for topic, number, end in said["ends"]},
        )


NOTHING_READ: Final = ReadSoFar("", "", "", {}, {})


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an audit goes on from. requests: REQUESTS, ends: ENDS of what is open."""

    read: ReadSoFar
    requests: DataFrame
    ends: DataFrame


def write_open(opened: DataFrame, read: ReadSoFar, folder: Path) -> None:
    """Write what the next audit needs (`opened`: OPEN_CASES) into a folder of results."""
    place = folder / OPEN
    open_requests(opened).write.mode("overwrite").parquet(spark_path(place / "requests"))
    open_ends(opened).write.mode("overwrite").parquet(spark_path(place / "ends"))
    (place / POSITIONS).write_text(json.dumps(read.to_json()) + "\n", "utf-8")


def earlier_audit(spark: SparkSession, folder: Path) -> Earlier:
    """What the audit with these results left. Raises `ResultsRefused`."""
    place = folder / OPEN
    return Earlier(
        _read_so_far(folder),
        read_table(spark, place / "requests", REQUESTS),
        read_table(spark, place / "ends", ENDS),
    )


def _read_so_far(folder: Path) -> ReadSoFar:
    if not (folder / SUMMARY).is_file():
        raise ResultsRefused(
            f"{folder} does not hold the results of an audit.",
            "Name in --continue-from the folder that an audit wrote.",
        )
    try:
        return ReadSoFar.from_json(json.loads((folder / OPEN / POSITIONS).read_text("utf-8")))
    except FileNotFoundError:
        raise ResultsRefused(
            f"Nobody can go on from the audit in {folder}: "
            "--since, --until or --offsets limited it.",
            "Go on from one of everything, or audit without --continue-from.",
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise ResultsRefused(
            f"What the audit in {folder} left open cannot be read: {error}.",
            "Audit without --continue-from.",
        ) from None
