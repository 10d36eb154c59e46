"""The control total: as many ingress records were read as got a verdict, or were passed over.

Spark counts what it reads while it reads it; the verdicts are counted in the table that was
written. Whatever is lost between, such as the files of workers that do not share the output folder,
shows.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from spark_jobs.kafka.positions import Range
from spark_jobs.runtime.errors import ResultsRefused

MOST_COUNTS: Final = 256
"""Beyond so many partitions, several are counted as one: by their numbers modulo that."""


class PartitionTotal(NamedTuple):
    """Of an ingress partition: the records read, those with a verdict, those passed over."""

    partition: int
    read: int
    verdicts: int
    skipped: int


class ControlTotal:
    """Counts ingress records as they are read."""

    def __init__(self) -> None:
        self._seen: list[Observation] = []

    def observed(self, records: DataFrame, ranges: Iterable[Range]) -> DataFrame:
        """The records of these ranges, counted when they are read for the first time."""
        numbers = {one.partition % MOST_COUNTS for one in ranges if one.start < one.end}
        if not numbers:
            return records
        observation = Observation()
        self._seen.append(observation)
        counts = [
            f.count_if(f.col("partition") % MOST_COUNTS == number).alias(str(number))
            for number in sorted(numbers)
        ]
        return records.observe(observation, *counts)

    def check(
        self, carried: DataFrame | None, verdicts: Mapping[int, int], skipped: DataFrame
    ) -> list[PartitionTotal]:
        """The totals by partition, of what was read and `carried` over from an earlier audit.

        Frames with the column `partition`, a row for each record; of `verdicts` how many there are
        by partition. Raises `ResultsRefused` where they do not come out even.
        """
        held = by_partition(carried) if carried is not None else {}
        read = _folded([*self._read(), *held.items()])
        given, passed = _folded(verdicts.items()), _folded(by_partition(skipped).items())
        found = [
            PartitionTotal(number, read.get(number, 0), given.get(number, 0), passed.get(number, 0))
            for number in sorted({*read, *given, *passed})
        ]
        for one in found:
            if one.read != one.verdicts + one.skipped:
                raise ResultsRefused(
                    f"The control total does not come out even: of ingress partition "
                    f"{one.partition} {one.read} records were read, {one.verdicts} have a verdict "
                    f"and {one.skipped} were passed over.",
                    "Do all workers share the folder of --output? If they do, run the audit again.",
                )
        return found

    def _read(self) -> Iterator[tuple[int, int]]:
        seen = (observation.get.items() for observation in self._seen)
        return ((int(name), count) for counts in seen for name, count in counts)


def by_partition(records: DataFrame) -> dict[int, int]:
    """How many there are in each `partition`."""
    return {row.partition: row["count"] for row in records.groupBy("partition").count().collect()}


def _folded(counts: Iterable[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for partition, count in counts:
        number = partition % MOST_COUNTS
        found[number] = found.get(number, 0) + count
    return found
