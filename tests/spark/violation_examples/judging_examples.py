"""The audit's verdicts on all examples, in one audit. Each has its own ingress partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from spark_jobs.audit_scope import LatenessLimits, OverdueRules
from spark_jobs.results.result_tables import look
from spark_jobs.runtime.frames import location, materialising
from tests.spark.violation_examples import contradictions, examples
from tests.spark.violation_examples.topics import AUDITED_MS, ExampleTopics
from tests.support.simulation.manual_clock import START_MS
from tools.campaign import judging
from tools.campaign.rows_of_topics import laid_out
from tools.campaign.scene import LAST, OWN

Story = Callable[[ExampleTopics], None]
BOOTSTRAP: Final = "localhost:9092"
LIMITS: Final = LatenessLimits(None, (("alerts", 2_000),))
"""--max-lateness alerts=2s"""


class Finding(NamedTuple):
    """A violation as in the report. `place` is of its record or, without one, of its end."""

    verdict: str
    place: tuple[str, int, int]
    detail: str
    commands: Sequence[str]


class Example(NamedTuple):
    """A story's topics, and the audit's findings."""

    name: str
    topics: ExampleTopics
    findings: Sequence[Finding]


def stories() -> list[Story]:
    return [
        story
        for module in (examples, contradictions)
        for story in vars(module).values()
        if callable(story) and getattr(story, "__module__", "") == module.__name__
    ]


def judged(spark: SparkSession, folder: Path) -> list[Example]:
    told = {story.__name__: ExampleTopics(number) for number, story in enumerate(stories())}
    for story in stories():
        story(told[story.__name__])
        told[story.__name__].end()
    found = _findings(spark, folder, [*told.values()])
    return [Example(name, topics, found[topics.number]) for name, topics in told.items()]


def _findings(
    spark: SparkSession, folder: Path, told: Sequence[ExampleTopics]
) -> list[list[Finding]]:
    laid = laid_out(spark, [one.contents() for one in told], folder / "topics")
    seen = replace(
        laid.scope(LAST),
        at_ms=AUDITED_MS,
        reading_from_ms=AUDITED_MS,
        seen_ms=AUDITED_MS,
        limits=LIMITS,
        overdue_rules=OverdueRules(START_MS, ()),
    )
    found: list[list[Finding]] = [[] for _ in told]
    with materialising(spark, location(folder)) as keep:
        done = judging.evaluated(laid, seen, keep)
        wrong = done.verdicts.filter("is_violation").withColumn(
            "look", look(BOOTSTRAP, OWN.ingress)
        )
        for row in wrong.orderBy("partition", "offset").collect():
            place = (OWN.ingress, row.partition, row.offset)
            number = row.partition
            if row.partition is None:
                place = (row.at_topic, row.at_partition, row.at_offset)
                number = next(one.number for one in told if _holds(one, place))
            found[number].append(Finding(row.verdict, place, row.detail, row.look.splitlines()))
    return found


def _holds(topics: ExampleTopics, place: tuple[str, int, int]) -> bool:
    """Return whether the finding is of this story. Only one story has an unknown origin."""
    topic, partition, offset = place
    return any(
        (one.partition_, one.offset_) == (partition, offset)
        and not (one.header("timer-origin") or b"").startswith(OWN.ingress.encode())
        for one in topics.all(topic)
    )
