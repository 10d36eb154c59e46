"""The control total: as many ingress records were read as got a verdict, or were passed over.

Spark counts what it reads while it reads it; the verdicts are counted in the table that was
written. Whatever is lost between, such as the files of workers that do not share the output folder,
shows.
"""

from collections.abc import Iterable, Mapping
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
        self, carried: DataFrame | None, verdicts: DataFrame, skipped: DataFrame
    ) -> list[PartitionTotal]:
        """The totals by partition, of what was read and `carried` over from an earlier audit.

        Frames with the column `partition`, a row for each record. Raises `ResultsRefused` where
        they do not come out even.
        """
        read = self._read()
        if carried is not None:
            for number, count in _counts(carried).items():
                read[number] = read.get(number, 0) + count
        given, passed = _counts(verdicts), _counts(skipped)
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

    def _read(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for observation in self._seen:
            for name, count in observation.get.items():
                found[int(name)] = found.get(int(name), 0) + count
        return found


def _counts(records: DataFrame) -> Mapping[int, int]:
    number = (f.col("partition") % MOST_COUNTS).alias("number")
    return {row.number: row["count"] for row in records.groupBy(number).count().collect()}
