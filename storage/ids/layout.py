"""The format of the register's files: runs (ids, hashes, filter, rows, names) and manifest."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from hashlib import shake_256
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from storage.errors import StoreDamaged
from storage.memtable import are_beyond, count_upto
from storage.store import Column, Key

Words: TypeAlias = npt.NDArray[np.uint64]
WORD_BYTES = 8
_WIDEST = 64
"""Ids of at most this many bytes are padded in one step, as rows of a matrix."""


class Idents(NamedTuple):
    """Ids as words."""

    words: Words
    """The words of all ids. Each id is padded with zeros to one or more whole words."""
    starts: Column
    """Index of each id's first word in `words`."""
    sizes: Column
    """Bytes of each id."""


Hashing: TypeAlias = Callable[[Idents], Words]
"""Returns a hash for each id, stable across processes."""


def words_of(sizes: Column) -> Column:
    """Return the number of words for each id size."""
    return np.maximum((sizes + (WORD_BYTES - 1)) // WORD_BYTES, 1)


def padded(ids: Sequence[bytes]) -> Idents:
    """Return ids as words of 8 bytes, each padded with zeros."""
    lengths = set(map(len, ids))
    if len(lengths) == 1:
        return _padded_alike(ids, lengths.pop())
    sizes = np.fromiter(map(len, ids), np.int64, len(ids))
    counts = words_of(sizes)
    widest = int(counts.max(initial=1))
    if widest * WORD_BYTES <= _WIDEST:
        matrix = np.array(ids, f"S{widest * WORD_BYTES}").view("<u8").reshape(len(ids), widest)
        is_even = int(counts.min(initial=widest)) == widest
        words = matrix.ravel() if is_even else matrix[np.arange(widest) < counts[:, np.newaxis]]
    else:
        rooms = (counts * WORD_BYTES).tolist()
        parts = [ident.ljust(room, b"\0") for ident, room in zip(ids, rooms, strict=True)]
        words = np.frombuffer(b"".join(parts), "<u8")
    return Idents(words, np.cumsum(counts) - counts, sizes)


def _padded_alike(ids: Sequence[bytes], size_bytes: int) -> Idents:
    sizes = np.full(len(ids), size_bytes)
    width = int(words_of(sizes[:1])[0])
    gap = bytes(width * WORD_BYTES - size_bytes)
    words = np.frombuffer(gap.join(ids) + gap, "<u8")
    return Idents(words, np.arange(len(ids)) * width, sizes)


def gathered(words: Words, starts: Column, sizes: Column) -> Idents:
    """Copy the ids at `starts` into new words, in this order."""
    counts = words_of(sizes)
    width = int(counts[0]) if counts.size else 1
    if words.size % width == 0 and (counts == width).all() and not (starts % width).any():
        rows = words.reshape(-1, width).take(starts // width, axis=0)
        return Idents(rows.ravel(), np.arange(counts.size) * width, sizes)
    ends = np.cumsum(counts)
    firsts = ends - counts
    total = int(ends[-1]) if ends.size else 0
    return Idents(words[np.repeat(starts - firsts, counts) + np.arange(total)], firsts, sizes)


def idents_of(rows: Rows, words: Words) -> Idents:
    """Copy the ids of `rows` from `words`."""
    return gathered(words, rows["word"], rows["size"].astype(np.int64))


def texts(idents: Idents) -> list[bytes]:
    """Return the ids as bytes."""
    data = idents.words.tobytes()
    starts = idents.starts * WORD_BYTES
    ends = starts + idents.sizes
    return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


HASH_NAME = "multilinear-1"
"""Stored in the manifest. Runs sorted by another hash cannot be read."""
KEY_BYTES = 8
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_LAST = np.uint64(0x94D049BB133111EB)


class IdHash:
    """A keyed 64-bit hash of ids, evenly distributed in its highest bits.

    It is multilinear modulo 2^64 and mixed with SplitMix64's finaliser. Without the seed, nobody
    can choose two ids that collide with a probability above 2^-32 (Lemire and Kaser, Strongly
    universal string hashing is fast)."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._keys = self._made(8)

    def __call__(self, idents: Idents) -> Words:
        words, starts, sizes = idents
        if not starts.size:
            return np.zeros(0, np.uint64)
        counts = words_of(sizes)
        keys = self._keys_for(int(counts.max()))
        lows, highs = words & _LOW, words >> _HALF
        width = words.size // starts.size
        if (counts == width).all():
            shape = (starts.size, width)
            products = lows.reshape(shape) * keys[1 : 2 * width : 2]
            products += highs.reshape(shape) * keys[2 : 2 * width + 1 : 2]
            sums: Words = products.sum(axis=1, dtype=np.uint64)
        else:
            first = 1 + 2 * (np.arange(words.size) - np.repeat(starts, counts))
            sums = np.add.reduceat(lows * keys[first] + highs * keys[first + 1], starts)
        sums += sizes.astype(np.uint64) * keys[0]
        return _mixed(sums)

    def _keys_for(self, words: int) -> Words:
        needed = 1 + 2 * words
        if self._keys.size < needed:
            self._keys = self._made(2 * needed)
        return self._keys

    def _made(self, count: int) -> Words:
        """Return the first `count` keys of an endless series."""
        return np.frombuffer(shake_256(self._seed).digest(KEY_BYTES * count), "<u8")


def _mixed(sums: Words) -> Words:
    sums ^= sums >> np.uint64(30)
    sums *= _MIX
    sums ^= sums >> np.uint64(27)
    sums *= _LAST
    sums ^= sums >> np.uint64(31)
    return sums


WORD_BITS: Final = 64
WORD_POWER: Final = 6
_ONE, _PLACE = np.uint64(1), np.uint64(WORD_BITS - 1)
_LATER = tuple(np.uint64(number * WORD_POWER) for number in (1, 2, 3))


def filter_power(ids: int, bits_per_id: int) -> int:
    """Return the size of a filter in bits, as a power of two."""
    return max(WORD_POWER + 1, (max(1, ids) * bits_per_id - 1).bit_length())


def bits_of(hashes: Words) -> Words:
    """Return the filter bits of each hash, taken from its lowest bits."""
    bits = _ONE << (hashes & _PLACE)
    for shift in _LATER:
        bits |= _ONE << ((hashes >> shift) & _PLACE)
    return bits


class BloomFilter:
    """A Bloom filter. A hash sets four bits in a word. The highest bits of the hash select it."""

    def __init__(self, words: Words, power: int) -> None:
        self.words = words
        self._shift = np.uint64(64 + WORD_POWER - power)

    @classmethod
    def empty(cls, power: int) -> BloomFilter:
        return cls(np.zeros((1 << power) // WORD_BITS, np.uint64), power)

    def add(self, hashes: Words) -> None:
        if hashes.size:
            ordered = np.sort(hashes)
            places = self._places(ordered)
            is_first = np.empty(places.size, np.bool_)
            is_first[0] = True
            np.not_equal(places[1:], places[:-1], out=is_first[1:])
            firsts = np.flatnonzero(is_first)
            self.words[places[firsts]] |= np.bitwise_or.reduceat(bits_of(ordered), firsts)

    def passing(self, hashes: Words, bits: Words) -> Column:
        """Return the indices of the `hashes` that may be in the filter.

        `bits` are their filter bits (`bits_of`)."""
        return np.flatnonzero((self.words.take(self._places(hashes)) & bits) == bits)

    def _places(self, hashes: Words) -> Column:
        return (hashes >> self._shift).view(np.int64)


# Contents of a run's file (storage/FORMAT.md, "Ids").

Rows: TypeAlias = npt.NDArray[np.void]
MAGIC = b"KDPIDS05"
ROW = np.dtype(
    [
        ("latest", "<i8"),
        ("fires_ms", "<i8"),
        ("offset", "<i8"),
        ("origin", "<i8"),
        ("due_ms", "<i8"),
        ("word", "<i8"),
        ("size", "<u4"),
        ("target", "<u4"),
        ("kind", "<u4"),
        ("check", "<u4"),
    ]
)
ROW_BYTES = ROW.itemsize
_OPAQUE = np.dtype((np.void, ROW_BYTES))
FILTER_BITS = 32
"""Filter bits per id. At most one in 1,000 unknown ids passes."""


class TombstoneColumns(NamedTuple):
    """Sorted keys of deleted entries."""

    fires_ms: Column
    offsets: Column
    targets: npt.NDArray[np.uint32]
    """For each key, the index of its target in the run's `names`."""

    def upto(self, key: Key) -> int:
        return count_upto(self.fires_ms, self.offsets, key)

    def key(self, place: int) -> Key:
        return int(self.fires_ms[place]), int(self.offsets[place])

    def part(self, start: int, end: int) -> TombstoneColumns:
        place = slice(start, end)
        return TombstoneColumns(self.fires_ms[place], self.offsets[place], self.targets[place])


NO_TOMBSTONES = TombstoneColumns(
    np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint32)
)


@dataclass(frozen=True, slots=True)
class RunContents:
    """Ids and tombstones of one run."""

    hashes: Words
    """Hash of each id, ascending."""
    rows: Rows
    """One row (ROW) for each id, in the order of `hashes`."""
    words: Words
    """The ids themselves."""
    tombstones: TombstoneColumns
    names: list[str] | MappedNames
    """Names of targets. A name may have two numbers (MOST_REMEMBERED)."""

    @property
    def size(self) -> int:
        return int(self.hashes.size) + int(self.tombstones.offsets.size)


def in_hash_order(hashes: Words, rows: Rows, words: Words) -> RunContents:
    """Return the contents of a run, sorted by hash."""
    order = np.argsort(hashes)
    ordered = taken(rows, order)
    idents = idents_of(ordered, words)
    ordered["word"] = idents.starts
    return RunContents(hashes[order], ordered, idents.words, NO_TOMBSTONES, [])


@dataclass(frozen=True, slots=True)
class RunSize:
    """The size of a run, or an upper bound."""

    ids: int
    words: int
    tombstones: int
    names: int
    names_bytes: int = 0

    @property
    def filter_power(self) -> int:
        return filter_power(self.ids, FILTER_BITS)

    def sections(self, power: int) -> dict[str, int]:
        """Return the bytes of each section, in file order. The filter has 2**power bits."""
        return {
            "hashes": 8 * self.ids,
            "rows": ROW_BYTES * self.ids,
            "filter": (1 << power) // 8,
            "fires_ms": 8 * self.tombstones,
            "offsets": 8 * self.tombstones,
            "targets": 4 * self.tombstones,
            "words": 8 * self.words,
            "name_ends": 8 * self.names,
            "names": self.names_bytes,
        }

    def positions(self) -> dict[str, int]:
        found, position = {}, len(MAGIC)
        for name, room_bytes in self.sections(self.filter_power).items():
            found[name] = position
            position += -(-room_bytes // 8) * 8
        return found


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run, as the manifest describes it."""

    number: int
    """Number in the name of its file."""
    bounds: RunSize
    """Upper bounds that set the file's layout."""
    used: RunSize
    """Sizes of the used parts."""
    crcs: dict[str, int]
    """CRC-32 of the used part of each section."""

    def lengths(self) -> dict[str, int]:
        return self.used.sections(self.bounds.filter_power)

    @property
    def file_bytes(self) -> int:
        return self.bounds.positions()["names"] + self.used.names_bytes

    def to_json(self) -> dict[str, Any]:
        bounds, used = astuple(self.bounds)[:-1], astuple(self.used)
        return {"number": self.number, "bounds": bounds, "used": used, "crcs": self.crcs}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> RunSummary:
        bounds, used = RunSize(*found["bounds"]), RunSize(*found["used"])
        return cls(found["number"], bounds, used, found["crcs"])


def taken(rows: Rows, at: Column | npt.NDArray[np.bool_]) -> Rows:
    """Copy rows as bytes, because numpy would copy field by field."""
    found: Rows = rows.view(_OPAQUE)[at].view(ROW)
    return found


def joined(parts: Sequence[Rows]) -> Rows:
    """Concatenate rows by their bytes, which is faster than field by field."""
    found: Rows = np.concatenate([part.view(_OPAQUE) for part in parts]).view(ROW)
    return found


def is_useless(rows: Rows, floor: int, ended: Key) -> npt.NDArray[np.bool_]:
    """Return which rows may be forgotten: offset and `latest` below the floor, entry ended."""
    offsets = rows["offset"]
    is_old = np.maximum(rows["latest"], offsets) < floor
    waits = are_beyond(rows["fires_ms"], offsets, ended) & (offsets >= 0)
    useless: npt.NDArray[np.bool_] = is_old & ~waits
    return useless


# Each row has its own checksum, because a lookup reads few rows and cannot check a section's CRC.

_WORDS: Final = ROW_BYTES // 8
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFF_FFFF)
_FACTORS: Final[Words] = np.array(
    [
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0xD6E8FEB86659FD93,
        0xA0761D6478BD642F,
        0xE7037ED1A0B428DB,
        0x8EBC6AF09C88C6E3,
        0x589965CC75374CC3,
        0x1D8E4E27C47D124F,
    ],
    np.uint64,
)
"""The factors are odd, so that a flipped bit always changes the checksum."""


def seal(rows: Rows, hashes: Words) -> None:
    """Set the checksum of each row."""
    rows["check"] = _checks(rows, hashes)


def are_whole(rows: Rows, hashes: Words) -> bool:
    """Return whether the checksum of each row is right."""
    return bool((rows["check"] == _checks(rows, hashes)).all())


def _checks(rows: Rows, hashes: Words) -> npt.NDArray[np.uint32]:
    """Return the checksums. The `check` field itself is taken as 0."""
    words = rows.view("<u8").reshape(-1, _WORDS)
    sums: Words = words[:, :-1] @ _FACTORS[: _WORDS - 1]
    sums += (words[:, -1] & _LOW) * _FACTORS[_WORDS - 1] + hashes * _FACTORS[_WORDS]
    return (sums >> _HALF).astype(np.uint32)


MOST_REMEMBERED: Final = 10_000
"""A merge remembers this many names, then forgets all. A forgotten name gets a second number."""


class MappedNames:
    """The target names of a run, read from its mapped file."""

    def __init__(self, ends: Column, data: memoryview) -> None:
        self._ends, self._data = ends, data

    def __len__(self) -> int:
        return int(self._ends.size)

    def __getitem__(self, number: int) -> str:
        start = int(self._ends[number - 1]) if number else 0
        return bytes(self._data[start : int(self._ends[number])]).decode()


class MergedNames:
    """The numbers of target names in a merged run. A number takes 8 bytes of memory."""

    def __init__(self, sources: Sequence[RunContents]) -> None:
        self._sources = [source.names for source in sources]
        self._bases = np.cumsum([0, *map(len, self._sources)]).astype(np.int64)
        self._numbers = np.full(int(self._bases[-1]), -1, np.int64)
        self._by_name: dict[str, int] = {}
        self._count = 0
        self._fresh: list[str] = []

    def base(self, number: int) -> np.uint32:
        return np.uint32(self._bases[number])

    def numbered(self, targets: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        numbers = self._numbers[targets]
        unseen = np.unique(targets[numbers < 0])
        for target in unseen.tolist():
            self._numbers[target] = self._number(target)
        if unseen.size:
            numbers = self._numbers[targets]
        return numbers.astype(np.uint32)

    def take_fresh(self) -> list[str]:
        fresh, self._fresh = self._fresh, []
        return fresh

    def _number(self, target: int) -> int:
        source = int(np.searchsorted(self._bases, target, "right")) - 1
        name = self._sources[source][target - int(self._bases[source])]
        number = self._by_name.get(name)
        if number is None:
            if len(self._by_name) >= MOST_REMEMBERED:
                self._by_name.clear()
            number = self._by_name[name] = self._count
            self._count += 1
            self._fresh.append(name)
        return number


MANIFEST = "manifest"
MANIFEST_MAGIC = b"KDPIDM04"
SEED_BYTES = 16
_PREFIX = Struct("<8sI")


@dataclass(frozen=True, slots=True)
class Manifest:
    """State of a register at one instant (storage/FORMAT.md, "The manifest")."""

    seed: str
    """Seed of the hash, in hexadecimal. A secret of the folder."""
    covered: int = 0
    """`runs` and `links` hold exactly the changes caused by lower offsets."""
    watermark_ms: int = -1
    cursor: int = -1
    """Entries at or below (watermark_ms, cursor) had ended."""
    links: Sequence[tuple[int, int, int]] = ()
    """(low, high, until_ms), as `storage.ids.memtable.Link`."""
    runs: Sequence[RunSummary] = ()
    """The runs, the oldest first."""
    boot_id: str = ""
    """Id of the boot of the machine, empty if the system has none."""

    def to_bytes(self) -> bytes:
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        fields |= {"runs": [summary.to_json() for summary in self.runs], "hashing": HASH_NAME}
        body = json.dumps(fields, separators=(",", ":")).encode()
        return _PREFIX.pack(MANIFEST_MAGIC, crc32(body)) + body


def new_manifest() -> Manifest:
    """Return the manifest of an empty register."""
    return Manifest(secrets.token_hex(SEED_BYTES))


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises StoreDamaged, FileNotFoundError."""
    data = path.read_bytes()
    if len(data) < _PREFIX.size:
        raise StoreDamaged(f"{path} has only {len(data)} bytes")
    magic, crc = _PREFIX.unpack_from(data)
    if magic != MANIFEST_MAGIC:
        raise StoreDamaged(f"{path} is of another version: it begins with {magic!r}")
    if crc32(data[_PREFIX.size :]) != crc:
        raise StoreDamaged(f"{path} fails its CRC")
    fields = json.loads(data[_PREFIX.size :])
    hashing = fields.pop("hashing")
    if hashing != HASH_NAME:
        raise StoreDamaged(f"{path} is sorted by the hash {hashing!r}, not {HASH_NAME!r}")
    fields["runs"] = [RunSummary.from_json(summary) for summary in fields["runs"]]
    fields["links"] = [(low, high, until_ms) for low, high, until_ms in fields["links"]]
    return Manifest(**fields)
