"""The checkpoint: one small file, replaced in one step, that says what the others mean."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
from zlib_ng.zlib_ng import crc32

from storage.errors import StoreDamaged
from storage.shard.memory.counts import ChunkCounts, Counts, no_counts
from storage.shard.memory.target_counter import TargetCounter
from storage.shard.memory.target_numbers import TargetNumbers

CHECKPOINT = "checkpoint"
MAGIC = b"KDPCKP06"
_PREFIX = Struct("<8sIII")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(slots=True)
class Checkpoint:
    """State of a shard at one instant (storage/FORMAT.md, "Checkpoint").

    covered: every ingress offset below it is in the files or has ended. (watermark_ms, cursor):
    entries at or below it are not in `counts`. closed: chains of slot numbers below it are done
    with. log_end: nothing in the log beyond it counts. redo_from: runs from here on may be missing
    in the wheel. live: records per segment that a chain still reaches. checks: the sum of the
    wheel's check numbers, once it has all runs. `counts` has the names of targets by number, too.
    """

    options: dict[str, int]
    covered: int = 0
    watermark_ms: int = -1
    cursor: int = -1
    closed: int = 0
    log_end: int = 0
    redo_from: int = 0
    live: dict[int, int] = field(default_factory=dict)
    checks: int = 0
    boot_id: str = ""
    counts: Counts = field(default_factory=lambda: no_counts(TargetNumbers()))

    def to_bytes(self) -> bytes:
        """The file's contents."""
        targets, chunks = self.counts.targets, self.counts.chunks.copy()
        fields = {name: value for name, value in _fields(self).items() if name != "counts"}
        sizes = self.counts.target_bytes
        by_name = targets.numbers.by_name
        numbered = {
            name: [by_name[name], count, sizes.by_name[name]]
            for name, count in targets.by_name.items()
        }
        fields |= {"targets": numbered, "others": [targets.others, sizes.others]}
        fields |= {"shift": chunks.shift, "base": chunks.base}
        text = json.dumps(fields, separators=(",", ":")).encode()
        numbers = chunks.counts.astype("<i8").tobytes()
        body = text + numbers
        return _PREFIX.pack(MAGIC, crc32(body), len(text), len(numbers)) + body


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in `path`. Raises StoreDamaged unless it is whole, FileNotFoundError."""
    return parse_checkpoint(path.read_bytes(), path)


def parse_checkpoint(data: bytes, path: Path) -> Checkpoint:
    """The checkpoint in `data`, found in `path`. Raises StoreDamaged unless it is whole."""
    if len(data) < _PREFIX.size:
        raise StoreDamaged(f"{path} has only {len(data)} bytes")
    magic, crc, text_bytes, number_bytes = _PREFIX.unpack_from(data)
    body = data[_PREFIX.size :]
    if magic != MAGIC:
        raise StoreDamaged(f"{path} is of another version: it begins with {magic!r}")
    if len(body) != text_bytes + number_bytes or crc32(body) != crc:
        raise StoreDamaged(f"{path} fails its CRC")
    return _from_fields(json.loads(body[:text_bytes]), body[text_bytes:])


def boot_id() -> str:
    """Changes when the machine restarts, and with it what its page cache held; may be ''."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _fields(checkpoint: Checkpoint) -> dict[str, Any]:
    return {name: getattr(checkpoint, name) for name in checkpoint.__slots__}


def _from_fields(fields: dict[str, Any], by_chunk: bytes) -> Checkpoint:
    chunks = ChunkCounts(
        fields.pop("shift"), fields.pop("base"), np.frombuffer(by_chunk, "<i8").astype(np.int64)
    )
    targets, (others, others_bytes) = fields.pop("targets"), fields.pop("others")
    numbers = TargetNumbers({at: name for name, (at, _, _) in targets.items()}, is_closed=True)
    counted = {name: count for name, (_, count, _) in targets.items()}
    sizes = {name: size for name, (_, _, size) in targets.items() if size}
    counts = Counts(
        TargetCounter(numbers, counted, others), TargetCounter(numbers, sizes, others_bytes), chunks
    )
    fields["live"] = {int(number): records for number, records in fields["live"].items()}
    return Checkpoint(**fields, counts=counts)
