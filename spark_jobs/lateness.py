"""How late deliveries were: per target and minute, hour or length of the delay.

`python -m spark_jobs.lateness --output DIR [--by hour]` prints it for the results of an audit.
"""

from enum import StrEnum
from typing import Annotated

import typer

from spark_jobs.arguments import AsJson, DriverMemory, Master, Output, readable_errors, run
from spark_jobs.results.formatting import print_rows
from spark_jobs.results.lateness_figures import FIGURES, by_hour, by_minute, by_target
from spark_jobs.results.newest_verdicts import newest_verdicts
from spark_jobs.runtime.session import job_session


class By(StrEnum):
    """What to group by, beside the target."""

    TARGET = "target"
    HOUR = "hour"
    MINUTE = "minute"


def main(
    output: Output,
    by: Annotated[By, typer.Option(help="How fine.")] = By.TARGET,
    json: AsJson = False,
    master: Master = "local[*]",
    driver_memory: DriverMemory = "1g",
) -> None:
    """How late the deliveries were that an audit found: p50, p99 and the latest."""
    with readable_errors():
        grouped = {By.TARGET: by_target, By.HOUR: by_hour, By.MINUTE: by_minute}[by]
        with job_session("lateness", master, driver_memory) as spark:
            found = grouped(newest_verdicts(spark, output))
            keys = [name for name in found.columns if name not in FIGURES]
            print_rows(found.orderBy(*keys), as_json=json)


if __name__ == "__main__":
    run(main)
