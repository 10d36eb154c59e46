"""What a register's files mean: replaced by rename, and from there on it counts."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any

from zlib_ng.zlib_ng import crc32

from storage.errors import StoreDamaged
from storage.ids.runs.id_hash import HASH_NAME
from storage.ids.runs.layout import RunSummary

MANIFEST = "manifest"
MAGIC = b"KDPIDM04"
SEED_BYTES = 16
_PREFIX = Struct("<8sI")


@dataclass(frozen=True, slots=True)
class Manifest:
    """State of a register at one instant.

    covered: every change caused by ingress offsets below it is in the runs and links, those at or
    beyond it are not. (watermark_ms, cursor): what had ended. runs: oldest first. seed: of the
    hash, in hexadecimal digits; a secret of the folder."""

    seed: str
    covered: int = 0
    watermark_ms: int = -1
    cursor: int = -1
    links: Sequence[tuple[int, int, int]] = ()
    runs: Sequence[RunSummary] = ()
    boot_id: str = ""

    def to_bytes(self) -> bytes:
        """The file's contents."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        fields |= {"runs": [summary.to_json() for summary in self.runs], "hashing": HASH_NAME}
        body = json.dumps(fields, separators=(",", ":")).encode()
        return _PREFIX.pack(MAGIC, crc32(body)) + body


def new_manifest() -> Manifest:
    """Of a register that holds nothing."""
    return Manifest(secrets.token_hex(SEED_BYTES))


def read_manifest(path: Path) -> Manifest:
    """The manifest in `path`. Raises StoreDamaged unless it is whole, FileNotFoundError."""
    data = path.read_bytes()
    if len(data) < _PREFIX.size:
        raise StoreDamaged(f"{path} has only {len(data)} bytes")
    magic, crc = _PREFIX.unpack_from(data)
    if magic != MAGIC:
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
