"""The `Register` on disk: memory tables for what is new, sorted runs for the rest."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from pathlib import Path

import numpy as np

from storage.ids.compaction import Upkeep
from storage.ids.lsm_state import Holdings
from storage.ids.options import IdOptions
from storage.ids.runs.hash_filter import marks_of
from storage.ids.runs.idents import Hashing, Words, padded
from storage.register import Key, Named
from storage.shard.damage_guard import DamageGuard
from storage.shard.files import Files
from storage.store import OpenReport

OF_KIND_ROWS = 16_384
NO_HASHES = np.zeros(0, np.uint64)


class DiskRegister:
    """One shard's ids. Lookups go from the newest place to the oldest: what is found first is what
    holds. `report` says how the folder was found."""

    def __init__(
        self,
        folder: Path,
        held: Holdings,
        options: IdOptions,
        files: Files,
        hashing: Hashing,
        report: OpenReport,
    ) -> None:
        self.report = report
        self._held = held
        self._hashing = hashing
        self._few_ids = options.few_ids
        self._upkeep = Upkeep(folder, held, options, files, hashing)
        self._guard = DamageGuard(folder, files)
        self._at = -1

    @property
    def covered(self) -> int:
        """See `Register.covered`."""
        return self._held.covered

    def find(self, ids: Iterable[bytes]) -> dict[bytes, Named]:
        """See `Register.find`. Raises StoreDamaged."""
        asked = ids if isinstance(ids, Sequence) else list(ids)
        found: dict[bytes, Named] = {}
        tables, runs = self._held.tables, self._held.runs
        needs_hashes = bool(runs) or any(table.new for table in tables)
        hashes = self._hashing(padded(asked)) if needs_hashes else NO_HASHES
        for table in reversed(tables):
            table.find(asked, hashes, found)
        if runs:
            with self._guard:
                self._find_on_disk(asked, hashes, found)
        return found

    def put(self, at: int, ident: bytes, named: Named) -> None:
        """See `Register.put`. Raises ValueError when `at` falls, or was said to be settled."""
        if at != self._at:
            self._move_to(at)
        recent = self._held.recent
        recent.ids[ident] = named
        recent.ident_bytes += len(ident)

    def put_if_new(
        self,
        ids: Sequence[bytes],
        fires_ms: Sequence[int],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> bool:
        """See `Register.put_if_new`. Raises as `put` and `find` do."""
        if len(ids) < self._few_ids:
            return self._put_few_if_new(ids, fires_ms, offsets, targets)
        idents = padded(ids)
        hashes = self._hashing(idents)
        if self._has_any(ids, hashes):
            return False
        self._move_to(offsets[0])
        recent = self._held.recent
        recent.new.add(idents, hashes, fires_ms, offsets, targets)
        recent.ident_bytes += int(idents.sizes.sum())
        recent.last = self._at = offsets[-1]
        return True

    def bury(self, at: int, key: Key, target: str) -> None:
        """See `Register.bury`. Raises as `put` does."""
        if at != self._at:
            self._move_to(at)
        self._held.buried.add(self._held.recent.buried, key, target)

    def buried(self, after: Key, upto: Key) -> set[Key]:
        """See `Register.buried`."""
        return self._held.buried.between(after, upto)

    def buried_by_target(self) -> Counter[str]:
        """See `Register.buried_by_target`."""
        return self._held.buried.by_target.copy()

    def link(self, at: int, low: int, high: int) -> None:
        """See `Register.link`. Raises as `put` does."""
        if at != self._at:
            self._move_to(at)
        self._held.recent.links.append((low, high))
        self._held.links.add(low, high)

    def lowered(self, floor: int) -> int:
        """See `Register.lowered`."""
        return self._held.links.lowered(floor)

    def of_kind(self, bit: int) -> Iterator[tuple[bytes, Named]]:
        """See `Register.of_kind`. Raises StoreDamaged."""
        seen: set[bytes] = set()
        with self._guard:
            for ids in self._may_be_of_kind(bit):
                unseen = [ident for ident in ids if ident not in seen]
                for ident, named in self.find(unseen).items():
                    if named.kind & bit and named.key > self._held.ended:
                        seen.add(ident)
                        yield ident, named

    def advance(self, watermark_ms: int, cursor: int) -> None:
        """See `Register.advance`."""
        ended = (watermark_ms, cursor)
        if ended > self._held.ended:
            self._held.ended = ended
            self._held.buried.end(ended)

    def maintain(self, settled_offset: int, floor: int) -> bool:
        """See `Register.maintain`."""
        self._held.settle(settled_offset, floor)
        with self._guard:
            return self._upkeep.step()

    def flush(self, settled_offset: int, floor: int) -> None:
        """See `Register.flush`."""
        self._held.settle(settled_offset, floor)
        with self._guard:
            self._upkeep.write_all()

    def close(self) -> None:
        """See `Register.close`."""
        self._upkeep.close()
        self._held.runs = []
        self._held.attach_buried()

    def _move_to(self, at: int) -> None:
        """Go on to changes caused at `at`. Tables are cut here alone, between two offsets: what is
        done again after a crash begins with the first change that an offset caused."""
        held = self._held
        if at < self._at or at < held.settled:
            raise ValueError(
                f"a change caused at offset {at} comes after one at {self._at}, or after "
                f"{held.settled} was said to be settled"
            )
        if held.is_closing and held.frozen is None:
            held.freeze()
        if held.recent.first < 0:
            held.recent.first = at
        held.recent.last = self._at = at

    def _put_few_if_new(
        self,
        ids: Sequence[bytes],
        fires_ms: Sequence[int],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> bool:
        if len(set(ids)) < len(ids) or self.find(ids):
            return False
        for ident, due_ms, at, target in zip(ids, fires_ms, offsets, targets, strict=True):
            self.put(at, ident, Named(at, due_ms, at, at, due_ms, target))
        return True

    def _has_any(self, ids: Sequence[bytes], hashes: Words) -> bool:
        """Whether two of these hashes are the same, or something seems to be known of an id."""
        in_order = np.sort(hashes)
        if (in_order[1:] == in_order[:-1]).any():
            return True
        marks = marks_of(in_order)
        if any(table.has_any(ids, in_order, marks) for table in self._held.tables):
            return True
        with self._guard:
            return any(run.has_any(in_order, marks) for run in self._held.runs)

    def _find_on_disk(
        self, asked: Sequence[bytes], hashes: Words, found: dict[bytes, Named]
    ) -> None:
        left: Sequence[bytes] = asked
        if found:
            is_left = np.fromiter((ident not in found for ident in asked), np.bool_, len(asked))
            left, hashes = list(compress(asked, is_left.tolist())), hashes[is_left]
        for run in reversed(self._held.runs):
            if not left:
                return
            indices, known = run.find(hashes, left)
            if known:
                found.update(zip(map(left.__getitem__, indices.tolist()), known, strict=True))
                unmet = np.delete(np.arange(len(left)), indices)
                left, hashes = [left[index] for index in unmet.tolist()], hashes[unmet]

    def _may_be_of_kind(self, bit: int) -> Iterator[list[bytes]]:
        for table in self._held.tables:
            yield [ident for ident, named in table.ids.items() if named.kind & bit]
        for run in reversed(self._held.runs):
            yield from run.of_kind(bit, self._held.ended, OF_KIND_ROWS)
