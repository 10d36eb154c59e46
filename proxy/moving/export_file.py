"""The format of an export: lines of JSON for the header, for each record, and for the trailer.

The trailer has the number of records and the SHA-256 of all lines before it. So an import finds a
truncated or changed export before it schedules a record.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Self

from proxy.dead_letters.letter import read_origin
from proxy.errors import ProxyError
from proxy.protocol.body import Headers
from proxy.protocol.bounded_json import read_object, whole
from proxy.protocol.headers import ID, text_of

FORMAT: Final = "kafka-delay-proxy export"
VERSION: Final = 1
LONGEST_LINE_BYTES: Final = 256 * 1024 * 1024

_encoded = json.JSONEncoder(separators=(",", ":")).encode


class ExportDamaged(ProxyError):
    """The input is a truncated or changed export, or no export."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"{name} is not a whole export: {why}. Nothing is imported from it.",
            "Copy the export again, or repeat `kafka-delay-proxy export`.",
        )


class ExportedPartition(NamedTuple):
    """The position of a partition in an export."""

    partition: int
    next_offset: int
    """The committed offset."""
    watermark_ms: int
    read_to: int
    """The export also covers the records from `next_offset` to before this offset."""


@dataclass(frozen=True, slots=True)
class ExportHeader:
    """The source of an export."""

    cluster: str
    topic: str
    topic_id: str
    group: str
    partitions: tuple[ExportedPartition, ...]
    is_live: bool
    """Whether the group had members, or committed meanwhile. Then the export may be outdated."""

    @property
    def source(self) -> str:
        """Return a name of the cluster, the ingress topic and the group."""
        return f"{self.cluster}/{self.topic_id}/{self.group}"

    def to_json(self) -> str:
        return _encoded({"format": FORMAT, "version": VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, line: bytes) -> Self:
        """Parse the first line. Raises ValueError, KeyError, TypeError."""
        found = read_object(line)
        if found.get("format") != FORMAT or found.get("version") != VERSION:
            raise ValueError(f"its first line does not say {FORMAT!r}, version {VERSION}")
        return cls(
            str(found["cluster"]),
            str(found["topic"]),
            str(found["topic_id"]),
            str(found["group"]),
            tuple(ExportedPartition(*map(whole, one)) for one in found["partitions"]),
            bool(found["is_live"]),
        )


class ExportedRecord(NamedTuple):
    """A pending record. Key and headers are as in the ingress, without the headers for the record's
    time."""

    topic: str
    partition: int
    offset: int
    """Topic, partition and offset are the origin of the record."""
    due_ms: int
    target: str
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def origin(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def ident(self) -> bytes | None:
        return next((raw for name, raw in reversed(self.headers) if name == ID), None)

    def to_json(self) -> str:
        """Return the record's line. The field `id` is for people. Imports do not read `id`."""
        fields: dict[str, Any] = {
            "origin": self.origin,
            "due": self.due_ms,
            "target": self.target,
        }
        if self.ident is not None:
            fields["id"] = text_of(self.ident)
        fields["key"], fields["value"] = _packed(self.key), _packed(self.value)
        fields["headers"] = [[name, _packed(raw)] for name, raw in self.headers]
        return _encoded(fields)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Parse a record's line. Raises ValueError, KeyError, TypeError."""
        origin = read_origin(found["origin"])
        if origin is None:
            raise ValueError("its origin is not topic/partition/offset")
        headers = [(str(name), _unpacked(raw)) for name, raw in found["headers"]]
        key, value = _unpacked(found["key"]), _unpacked(found["value"])
        due_ms, target = whole(found["due"]), str(found["target"])
        return cls(*origin, due_ms, target, key, value, headers)


class ExportWriter:
    """Writes an export line by line, with `write`."""

    def __init__(self, write: Callable[[bytes], object], header: ExportHeader) -> None:
        self._write, self._digest = write, hashlib.sha256()
        self.records = 0
        self._add(header.to_json())

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def add(self, record: ExportedRecord) -> None:
        self.records += 1
        self._add(record.to_json())

    def end(self) -> None:
        """Write the trailer, without which the export is not whole."""
        trailer = {"records": self.records, "sha256": self.sha256}
        self._write(_encoded(trailer).encode() + b"\n")

    def _add(self, text: str) -> None:
        line = text.encode() + b"\n"
        if len(line) > LONGEST_LINE_BYTES:
            raise ProxyError(f"A record is too large to be exported: {len(line):,} bytes.")
        self._digest.update(line)
        self._write(line)


class ExportReader:
    """Reads an export from its lines. Raises ExportDamaged, with `name` as the name of the export.

    `sha256` is set after the last record. Until then it is unknown whether the export is whole.
    """

    def __init__(self, lines: Iterator[bytes], name: str) -> None:
        self._lines, self._name = lines, name
        self._digest = hashlib.sha256()
        self.records = 0
        self.sha256 = ""
        try:
            self.header = ExportHeader.from_json(self._taken(next(lines, b"")))
        except (ValueError, KeyError, TypeError) as error:
            raise ExportDamaged(name, str(error)) from None

    def __iter__(self) -> Iterator[ExportedRecord]:
        for line in self._lines:
            try:
                found = read_object(line, LONGEST_LINE_BYTES)
                if "sha256" in found:
                    self._end(found)
                    return
                record = ExportedRecord.from_json(found)
            except (ValueError, KeyError, TypeError) as error:
                raise ExportDamaged(self._name, f"record {self.records + 1}: {error}") from None
            self._taken(line)
            self.records += 1
            yield record
        raise ExportDamaged(self._name, "its last line is missing")

    def _taken(self, line: bytes) -> bytes:
        self._digest.update(line)
        return line

    def _end(self, trailer: dict[str, Any]) -> None:
        sha256 = self._digest.hexdigest()
        if (trailer["records"], trailer["sha256"]) != (self.records, sha256):
            raise ValueError("its last line does not fit the lines before it")
        if next(self._lines, b""):
            raise ValueError("it has more lines after its last line")
        self.sha256 = sha256


def _packed(raw: bytes | None) -> str | None:
    return None if raw is None else b64encode(raw).decode()


def _unpacked(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)
