"""The numbers of an open shard: its watermark, floor, what is covered, what pends on disk."""

from dataclasses import dataclass

from storage.shard.memory.counts import Counts


@dataclass(slots=True)
class Ledger:
    """(watermark_ms, cursor): what has ended. counted: the same when the folder was opened, as
    far as `counts` reflect it. floor: nothing below it pended then. covered: offsets below it are
    in the files. next_offset: offsets below it are committed and were put here. counts: entries on
    disk that pend."""

    watermark_ms: int
    cursor: int
    counted: tuple[int, int]
    floor: int
    covered: int
    next_offset: int
    counts: Counts

    @property
    def ended(self) -> tuple[int, int]:
        """(watermark_ms, cursor)."""
        return self.watermark_ms, self.cursor
