"""What a continuous audit keeps between batches: what is open, its totals, its horizon.

The table `state` has a row of what batch N left, and the versions of the tables that belong to it.
It is written last, whole or not at all, and batch N + 1 begins from it, also when it is done again
after a crash: so nothing is counted twice. Only the last two are kept.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession

from spark_jobs.continuous.horizon import Horizon
from spark_jobs.continuous.totals import Totals
from spark_jobs.continuous.windows import WINDOWS
from spark_jobs.evidence.previous_audit import Span
from spark_jobs.kafka.broker import Place
from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.frames import Schema, local_rows
from spark_jobs.runtime.location import Location
from spark_jobs.tables.tables import Tables

VERSION: Final = 8
BEFORE_ALL: Final = -1
TABLE: Final = "state"
WINDOWS_TABLE: Final = "windows"
STATE: Final[Schema] = {
    "batch": "bigint",
    "open_version": "bigint",
    "windows_version": "bigint",
    "tally": "string",
}
"""Versions: null of what was not there yet. tally: JSON."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was read and is not judged yet: in so many portions (`Gathering`), so many offsets, up
    to where in each partition."""

    portions: int = 0
    offsets: int = 0
    read_to: Mapping[Place, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As the table has it."""
        return {**asdict(self), "read_to": _listed(self.read_to)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Gathered":
        """Raises KeyError, TypeError or ValueError for anything else."""
        return cls(stored["portions"], stored["offsets"], _by_place(stored["read_to"]))


def _listed(offsets: Mapping[Place, int]) -> list[list[Any]]:
    return [[*place, offset] for place, offset in offsets.items()]


def _by_place(listed: Iterable[Sequence[Any]]) -> dict[Place, int]:
    return {(topic, partition): offset for topic, partition, offset in listed}


@dataclass(frozen=True, slots=True)
class Tally:
    """All of a state but its frames. audited: the group and topic that it is about. ingress: by
    partition, what has been judged. lost: ingress offsets that were deleted before they were read.
    until_ms: up to when all is judged. ends: the first offset of each partition of targets, dead
    letters and outcomes that no batch has judged. gathered: what was read beyond these two."""

    audited: str
    horizon: Horizon
    ingress: Mapping[int, Span]
    totals: Totals
    lost: int = 0
    until_ms: int = 0
    ends: Mapping[Place, int] = field(default_factory=dict)
    gathered: Gathered = Gathered()

    def to_json(self) -> dict[str, Any]:
        """As the table has it."""
        return {
            "version": VERSION,
            "audited": self.audited,
            "horizon": self.horizon.to_json(),
            "ingress": [[number, *span] for number, span in self.ingress.items()],
            "totals": asdict(self.totals),
            "lost": self.lost,
            "until_ms": self.until_ms,
            "ends": _listed(self.ends),
            "gathered": self.gathered.to_json(),
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
            _by_place(stored["ends"]),
            Gathered.from_json(stored["gathered"]),
        )


@dataclass(frozen=True, slots=True)
class State:
    """The tally, the version of the open records (None: there are none yet), and WINDOWS that are
    not final."""

    tally: Tally
    open_version: int | None
    windows: DataFrame


class States:
    """The states of one continuous audit, in its location."""

    def __init__(self, spark: SparkSession, tables: Tables) -> None:
        self._spark, self._tables = spark, tables

    def newest(self) -> int | None:
        """The batch that left the newest state; None before the audit has begun."""
        return max((row.batch for row in self._rows()), default=None)

    def read(self, batch: int) -> State:
        """What a batch left. Raises `ResultsRefused`."""
        row = self._row(batch)
        windows = self._tables.read(WINDOWS_TABLE, WINDOWS, row.windows_version)
        if row.windows_version is None:
            windows = windows.limit(0)
        return State(self.tally(batch), row.open_version, windows)

    def tally(self, batch: int) -> Tally:
        """The same without frames."""
        try:
            return Tally.from_json(json.loads(self._row(batch).tally))
        except (KeyError, TypeError, ValueError) as error:
            raise ResultsRefused(
                f"The state that batch {batch} of the audit left cannot be read: {error}.",
                "Begin anew in another --output.",
            ) from None

    def begin(self, tally: Tally) -> None:
        """Write the state before all batches: nothing is open yet."""
        self._put(_row(BEFORE_ALL, tally, None, None))

    def write(self, batch: int, tally: Tally, open_version: int | None) -> None:
        """Put what a batch leaves in place of whatever it left before: of the open records this
        version, of the windows those that `write_windows` wrote."""
        self._put(_row(batch, tally, open_version, self._tables.version(WINDOWS_TABLE)))

    def amend(self, batch: int, tally: Tally) -> None:
        """Put another tally in place of the one that a batch left."""
        row = self._row(batch)
        self._put(_row(batch, tally, row.open_version, row.windows_version))

    def write_windows(self, windows: DataFrame) -> None:
        """Put WINDOWS in the place of those before."""
        self._tables.replace(WINDOWS_TABLE, windows.coalesce(1))

    def _put(self, row: dict[str, Any]) -> None:
        """With the one before, from which the batch begins if it is done again."""
        kept = [one.asDict() for one in self._rows() if one.batch == row["batch"] - 1]
        self._tables.replace(TABLE, local_rows(self._spark, [*kept, row], STATE))

    def _row(self, batch: int) -> Row:
        for row in self._rows():
            if row.batch == batch:
                return row
        raise ResultsRefused(
            f"The audit has no state of batch {batch}.", "Begin anew in another --output."
        )

    def _rows(self) -> list[Row]:
        return self._tables.read(TABLE, STATE).collect()


def _row(
    batch: int, tally: Tally, open_version: int | None, windows_version: int | None
) -> dict[str, Any]:
    told = json.dumps(tally.to_json())
    return dict(zip(STATE, (batch, open_version, windows_version, told), strict=True))


def check_state_place(place: Location) -> None:
    """Raises `ResultsRefused` where a folder of this machine is neither new nor a continuous
    audit's."""
    folder = place.folder
    if folder and folder.exists() and not _is_ours(folder):
        raise ResultsRefused(
            f"{folder} exists and does not hold the state of a continuous audit.",
            "Name a new folder in --output, or one that a continuous audit wrote.",
        )


def _is_ours(folder: Path) -> bool:
    return folder.is_dir() and ((folder / TABLE).is_dir() or not any(folder.iterdir()))
