"""What a continuous audit keeps between batches, on disk: what is open, its totals, its horizon.

`state/N` is what batch N left. It appears whole or not at all, and batch N + 1 begins from it, also
when it is done again after a crash: so nothing is counted twice. Only the last two are kept.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.continuous.horizon import Horizon
from spark_jobs.continuous.totals import Totals
from spark_jobs.continuous.windows import WINDOWS
from spark_jobs.evidence.ends import ENDS
from spark_jobs.evidence.previous_audit import REQUESTS, Span
from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.frames import Schema, local_rows, read_table, spark_path

VERSION: Final = 2
BEFORE_ALL: Final = -1
STATE: Final = "state.json"
FRAMES: Final[Mapping[str, Schema]] = {"requests": REQUESTS, "ends": ENDS, "windows": WINDOWS}


@dataclass(frozen=True, slots=True)
class Tally:
    """All of a state but its frames. audited: the group and topic that it is about. ingress: by
    partition, what has been read. lost: ingress offsets that were deleted before they were read.
    until_ms: up to when all is judged."""

    audited: str
    horizon: Horizon
    ingress: Mapping[int, Span]
    totals: Totals
    lost: int = 0
    until_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """As `state.json` has it."""
        return {
            "version": VERSION,
            "audited": self.audited,
            "horizon": self.horizon.to_json(),
            "ingress": [[number, *span] for number, span in self.ingress.items()],
            "totals": asdict(self.totals),
            "lost": self.lost,
            "until_ms": self.until_ms,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Tally":
        """Raises KeyError, TypeError or ValueError for anything else."""
        if stored["version"] != VERSION:
            raise ValueError(f"version {stored['version']} is not {VERSION}")
        return cls(
            stored["audited"],
            Horizon.from_json(stored["horizon"]),
            {number: Span(*span) for number, *span in stored["ingress"]},
            Totals(**stored["totals"]),
            stored["lost"],
            stored["until_ms"],
        )


@dataclass(frozen=True, slots=True)
class State:
    """The tally, and frames: REQUESTS and ENDS of what is open, WINDOWS that are not final."""

    tally: Tally
    requests: DataFrame
    ends: DataFrame
    windows: DataFrame


class States:
    """The states of one continuous audit, in its folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder / "state"

    def newest(self) -> int | None:
        """The batch that left the newest state; None before the audit has begun."""
        return max(self._numbers(), default=None)

    def read(self, batch: int) -> State:
        """What a batch left. Raises `ResultsRefused`."""
        return State(self.tally(batch), *(self._frame(batch, name) for name in FRAMES))

    def tally(self, batch: int) -> Tally:
        """The same without frames."""
        try:
            return Tally.from_json(json.loads((self._place(batch) / STATE).read_text("utf-8")))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ResultsRefused(
                f"The audit's state {self._place(batch)} cannot be read: {error}.",
                "Begin anew in another --output.",
            ) from None

    def begin(self, tally: Tally) -> None:
        """Write the state before all batches: nothing is open yet, so there are no frames."""
        self._put(BEFORE_ALL, tally, {})

    def write(self, batch: int, state: State) -> None:
        """Put what a batch leaves in place of whatever it left before."""
        self._put(batch, state.tally, {name: getattr(state, name) for name in FRAMES})

    def _put(self, batch: int, tally: Tally, frames: Mapping[str, DataFrame]) -> None:
        arriving = self._folder / f".{batch}"
        shutil.rmtree(arriving, ignore_errors=True)
        arriving.mkdir(parents=True)
        for name, frame in frames.items():
            frame.coalesce(self._files()).write.parquet(spark_path(arriving / name))
        (arriving / STATE).write_text(json.dumps(tally.to_json()) + "\n", "utf-8")
        shutil.rmtree(self._place(batch), ignore_errors=True)
        arriving.rename(self._place(batch))
        for older in self._numbers():
            if older < batch - 1:
                shutil.rmtree(self._place(older), ignore_errors=True)

    def _files(self) -> int:
        return max(1, self._spark.sparkContext.defaultParallelism)

    def _numbers(self) -> list[int]:
        found = self._folder.glob("*") if self._folder.is_dir() else ()
        return [int(one.name) for one in found if not one.name.startswith(".")]

    def _place(self, batch: int) -> Path:
        return self._folder / str(batch)

    def _frame(self, batch: int, name: str) -> DataFrame:
        if batch == BEFORE_ALL:
            return local_rows(self._spark, [], FRAMES[name])
        return read_table(self._spark, self._place(batch) / name, FRAMES[name])


def check_state_folder(folder: Path) -> None:
    """Raises `ResultsRefused` where `folder` is neither new nor a continuous audit's."""
    if folder.exists() and not (folder / "state").is_dir() and any(folder.iterdir()):
        raise ResultsRefused(
            f"{folder} exists and does not hold the state of a continuous audit.",
            "Name a new folder in --output, or one that a continuous audit wrote.",
        )
