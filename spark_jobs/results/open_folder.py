"""What an audit leaves to one that continues it, and reads of the one before.

In the folder `open` of its results: requests/ and ends/ (Parquet), and positions.json.
"""

import json
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.evidence.ends import ENDS
from spark_jobs.evidence.previous_audit import REQUESTS, PreviousAudit, ReadSoFar
from spark_jobs.results.results_folder import SUMMARY
from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.frames import read_table, spark_path
from spark_jobs.verdicts.carry_over import carried_ends, carried_requests

OPEN: Final = "open"
POSITIONS: Final = "positions.json"


def write_open(carried: DataFrame, read: ReadSoFar, folder: Path) -> None:
    """Write what the next audit needs (`carried`: of `Evaluation`) into a folder of results."""
    place = folder / OPEN
    carried_requests(carried).write.mode("overwrite").parquet(spark_path(place / "requests"))
    carried_ends(carried).write.mode("overwrite").parquet(spark_path(place / "ends"))
    (place / POSITIONS).write_text(json.dumps(read.to_json()) + "\n", "utf-8")


def read_previous_audit(spark: SparkSession, folder: Path) -> PreviousAudit:
    """What the audit with these results left. Raises `ResultsRefused`."""
    place = folder / OPEN
    return PreviousAudit(
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
