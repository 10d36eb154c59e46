"""FIFOs as a `Backing`: one a delay level, found by patience sorting (FORMAT.md, "Levels")."""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

from storage.errors import StoreDamaged
from storage.shard.checkpoint import Checkpoint, boot_id, read_checkpoint
from storage.shard.due_histogram import Piece
from storage.shard.files import Files
from storage.sorted.backing import Key, Rows
from storage.sorted.levels_fifo import FILE_BYTES, Fifo, Row, Stream, frame, framed
from storage.store import Entry
from storage.wheel.wheel_files import CHECKPOINT

LEVELS = "levels"
FORMAT = {"levels": 1}
MOST_FIFOS = 64
MERGE_AT = 40
MERGED_AT_ONCE = 20
MERGE_BYTES = 256 * 1024
MERGE_COST = 3
"""A merged row takes the time of about three written ones."""

_key_of = itemgetter(0, 1)


class LevelsBacking:
    """Each FIFO holds rows in order; a row goes to the one whose last row is the nearest before
    it. Rows of one fixed delay so share a FIFO; any others are kept too, at the cost of merging."""

    def __init__(self, folder: Path, files: Files, *, is_read_only: bool = False) -> None:
        self.checkpoint: Checkpoint | None = None
        self._folder = folder / LEVELS
        self._path = folder / CHECKPOINT
        self._files = files
        self._fifos: list[Fifo] = []
        self._at: Key | None = None
        self._merge: Iterator[int] | None = None
        self._merging: list[Fifo] = []
        with suppress(FileNotFoundError):
            self.checkpoint = read_checkpoint(self._path)
        if self.checkpoint is not None:
            self._fifos = [self._fifo(facts) for facts in self.checkpoint.fifos]
            self._check_lengths()
        self._next_number = 1 + max((fifo.number for fifo in self._fifos), default=-1)
        if not is_read_only:
            self._folder.mkdir(exist_ok=True)
            self._remove_unknown()
        if self.checkpoint is not None and self.checkpoint.boot_id not in {boot_id()} - {""}:
            self._read_everything()

    @property
    def files(self) -> int:
        """How many FIFOs there are."""
        return len(self._fifos)

    def read(self, after: Key, until_ms: int, most_rows: int, most_bytes: int) -> Rows:
        """See `Backing.read`."""
        if after != self._at:
            for fifo in self._fifos:
                fifo.seek(after)
        self._at = None
        found: list[Row] = []
        room_bytes = most_bytes
        merged = _Merged(self._fifos)
        while merged.next_due_ms is not None and merged.next_due_ms <= until_ms:
            if len(found) >= most_rows or (found and room_bytes <= 0):
                break
            row = merged.take()
            found.append(row)
            room_bytes -= len(row.body)
        self._at = found[-1][:2] if found else after
        names = {row.target: row.target.decode() for row in found}
        return Rows(
            [row.due_ms for row in found],
            [row.offset for row in found],
            [names[row.target] for row in found],
            [row.body for row in found],
            merged.next_due_ms,
        )

    def pieces(self) -> list[Piece]:
        """See `Backing.pieces`: by the length of each FIFO."""
        if self.checkpoint is None:
            return []
        rows, first_ms = self.checkpoint.counts.total, max(0, self.checkpoint.watermark_ms)
        size_bytes = sum(fifo.end - fifo.head for fifo in self._fifos)
        return [
            Piece(first_ms, fifo.tail[0], rows * (fifo.end - fifo.head) / size_bytes)
            for fifo in self._fifos
            if fifo.tail[0] >= first_ms
        ]

    def write(self, entries: Sequence[Entry], checkpoint: Checkpoint) -> None:
        """See `Backing.write`: rows beyond the ends, then the checkpoint, then it counts."""
        while len(self._fifos) >= MOST_FIFOS:
            self.tidy(2**62)
        ended = (checkpoint.watermark_ms, checkpoint.cursor)
        heads = {fifo.number: self._head_to_be(fifo, ended) for fifo in self._fifos}
        grown = self._append(entries)
        kept = [fifo for fifo in self._fifos if heads[fifo.number] < fifo.end]
        table = {fifo.number: [fifo.number, heads[fifo.number], *fifo.facts()[2:]] for fifo in kept}
        for fifo, end, tail in grown:
            head = min(heads.get(fifo.number, fifo.head), end)
            table[fifo.number] = [fifo.number, head, end, *tail]
        checkpoint.fifos = list(table.values())
        self._files.replace(self._path, checkpoint.to_bytes())
        self.checkpoint = checkpoint
        self._adopt(grown, heads)

    def tidy(self, budget_entries: int) -> bool:
        """See `Backing.tidy`: merge many short FIFOs into one."""
        if self._merge is None and len(self._fifos) >= MERGE_AT:
            by_size = sorted(self._fifos, key=lambda fifo: fifo.end - fifo.head)
            self._merging = by_size[:MERGED_AT_ONCE]
            self._merge = self._merge_steps([fifo.twin() for fifo in self._merging])
        spent = 0
        while self._merge is not None and spent < budget_entries:
            try:
                spent += next(self._merge)
            except StopIteration:
                self._merge, self._merging = None, []
            except BaseException:
                self._merge, self._merging = None, []
                raise
        return self._merge is not None

    def persist(self) -> None:
        """See `Backing.persist`: what was written is with the system already."""

    def close(self) -> None:
        """See `Backing.close`: files are open only while they are read or written."""

    def _head_to_be(self, fifo: Fifo, ended: Key) -> int:
        return fifo.head if fifo in self._merging else fifo.head_beyond(ended)

    def _append(self, entries: Sequence[Entry]) -> list[tuple[Fifo, int, Key]]:
        """Write entries behind the ends; each FIFO with its end and tail to come."""
        if not entries:
            return []
        homes = sorted(
            (fifo for fifo in self._fifos if fifo not in self._merging), key=lambda fifo: fifo.tail
        )
        starts = [bisect_right(entries, fifo.tail, key=_key_of) for fifo in homes]
        if not homes or starts[0]:
            homes.insert(0, self._fifo([self._next_number, 0, 0, -1, -1]))
            starts.insert(0, 0)
        grown: list[tuple[Fifo, int, Key]] = []
        for fifo, start, stop in zip(homes, starts, [*starts[1:], len(entries)], strict=True):
            if start < stop:
                data = framed(entries[start:stop])
                fifo.stream.write(fifo.end, data)
                grown.append((fifo, fifo.end + len(data), _key_of(entries[stop - 1])))
        return grown

    def _adopt(self, grown: list[tuple[Fifo, int, Key]], heads: dict[int, int]) -> None:
        for fifo, end, tail in grown:
            fifo.end, fifo.tail = end, tail
            if fifo.number not in heads:
                self._fifos.append(fifo)
                self._next_number = max(self._next_number, fifo.number + 1)
                self._at = None
        for fifo in self._fifos:
            fifo.move_head(max(fifo.head, heads.get(fifo.number, 0)))
        self._fifos = [fifo for fifo in self._fifos if fifo.head < fifo.end]

    def _merge_steps(self, sources: list[Fifo]) -> Iterator[int]:
        """Copy the rows of `sources` into a new FIFO, then let that take their places."""
        number = self._next_number
        self._next_number += 1
        merged = self._fifo([number, 0, 0, -1, -1])
        rows = _Merged(sources)
        try:
            while rows.next_due_ms is not None:
                part = list(rows.some(MERGE_BYTES))
                data = b"".join(frame(*row[:4]) for row in part)
                merged.stream.write(merged.end, data)
                merged.end, merged.tail = merged.end + len(data), part[-1][:2]
                yield MERGE_COST * len(part)
            self._confirm(sources, merged)
        except OSError:
            merged.stream.drop(0, merged.end + FILE_BYTES)
            raise
        for fifo in self._merging:
            fifo.move_head(fifo.end)
        stay = [fifo for fifo in self._fifos if fifo not in self._merging]
        self._fifos, self._at = [*stay, merged], None

    def _confirm(self, sources: list[Fifo], merged: Fifo) -> None:
        """Let the checkpoint name the merged FIFO instead of its sources."""
        assert self.checkpoint is not None
        gone = {fifo.number for fifo in sources}
        table = [facts for facts in self.checkpoint.fifos if facts[0] not in gone]
        changed = replace(self.checkpoint, fifos=[*table, merged.facts()])
        self._files.replace(self._path, changed.to_bytes())
        self.checkpoint = changed

    def _fifo(self, facts: Sequence[int]) -> Fifo:
        number, head, end, due_ms, offset = facts
        stream = Stream(self._folder, number, self._files)
        return Fifo(stream, number, head, end, (due_ms, offset))

    def _check_lengths(self) -> None:
        for fifo in self._fifos:
            fifo.stream.read(fifo.end - 1, 1)

    def _remove_unknown(self) -> None:
        known = {
            fifo.stream.path(position)
            for fifo in self._fifos
            for position in range(fifo.head // FILE_BYTES * FILE_BYTES, fifo.end, FILE_BYTES)
        }
        for path in set(self._folder.iterdir()) - known:
            self._files.remove(path)

    def _read_everything(self) -> None:
        """After a restart of the machine: writes may have been lost in any order."""
        for fifo in self._fifos:
            looking, last = fifo.twin(), None
            while looking.first() is not None:
                last = looking.take()[:2]
            if last != fifo.tail:
                raise StoreDamaged(f"{fifo.stream.path(fifo.end)} does not end as it should")


class _Merged:
    """The rows of several FIFOs in one order."""

    def __init__(self, fifos: Sequence[Fifo]) -> None:
        firsts = [(fifo.first(), fifo) for fifo in fifos]
        self._heap = [(row[:2], fifo.number, fifo) for row, fifo in firsts if row is not None]
        heapq.heapify(self._heap)

    @property
    def next_due_ms(self) -> int | None:
        return self._heap[0][0][0] if self._heap else None

    def take(self) -> Row:
        _, number, fifo = self._heap[0]
        row = fifo.take()
        following = fifo.first()
        if following is None:
            heapq.heappop(self._heap)
        else:
            heapq.heapreplace(self._heap, (following[:2], number, fifo))
        return row

    def some(self, most_bytes: int) -> Iterator[Row]:
        while self._heap and most_bytes > 0:
            row = self.take()
            most_bytes -= len(row.body) + 64
            yield row
