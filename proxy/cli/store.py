"""`store`: read-only views of the local data of a running or stopped proxy."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from proxy.cli.terminal import (
    Configured,
    Times,
    option,
    say,
    say_json,
    say_table,
    shown_bytes,
    shown_time,
    text_of,
)
from proxy.errors import ProxyError, require_store
from proxy.protocol.body import Delivery, LeftInKafka, body_bytes, delivery_of, is_stub
from storage.errors import StorageError
from storage.folder import kind_of
from storage.tier import FolderReport

SHARD_FOLDER: Final = re.compile(r"(?P<shard>.+-\d+)@[^.]+")


class NoLocalData(ProxyError):
    """The data folder holds no shard."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(
            f"There is no local data in {data_dir.absolute()}.",
            "Name the proxy's folder with --data-dir. A proxy that has just started has written "
            "nothing yet.",
        )


class LocalDataUnreadable(ProxyError):
    """A shard's folder is inconsistent. The proxy puts the folder aside and rebuilds the shard."""


@dataclass(frozen=True, slots=True)
class LocalShard:
    """The folder of one ingress partition. `name` is `<topic>-<partition>`."""

    name: str
    folder: Path

    def verify(self) -> FolderReport:
        """Check every file. Raises ExtraMissing."""
        self._require_kind()
        from storage.opening import verify

        return verify(self.folder)

    def entries(self) -> Iterator[Delivery | LeftInKafka]:
        """Yield the entries, sorted by (fires_ms, offset). Raises LocalDataUnreadable,
        ExtraMissing."""
        self._require_kind()
        from storage.opening import dump

        try:
            for row in dump(self.folder):
                entry = row["fires_ms"], row["offset"], row["target"], row["body"]
                if is_stub(entry[3]):
                    yield LeftInKafka(*entry[:3], body_bytes(entry[3]))
                else:
                    yield delivery_of(entry)
        except FileNotFoundError:
            return
        except (StorageError, ValueError) as error:
            raise LocalDataUnreadable(
                f"{self.folder} cannot be read: {error}.",
                "If the proxy runs, try again. If not, start the proxy: it puts a damaged "
                "folder aside and rebuilds the data from the broker.",
            ) from None

    def _require_kind(self) -> None:
        if kind := kind_of(self.folder):
            require_store(kind)


def local_shards(data_dir: Path) -> list[LocalShard]:
    """Return the shards of a data folder, sorted by name. Omit damaged folders that the proxy has
    put aside. Raises NoLocalData."""
    folders = [folder for folder in sorted(data_dir.glob("*@*")) if folder.is_dir()]
    named = [(SHARD_FOLDER.fullmatch(folder.name), folder) for folder in folders]
    shards = [LocalShard(match["shard"], folder) for match, folder in named if match]
    if not shards:
        raise NoLocalData(data_dir)
    return shards


@dataclass(frozen=True, kw_only=True)
class LocalData(Times, Configured):
    """Options of the commands on local data."""

    data_dir: Path | None = option("The proxy's data folder. Default: from the settings.")

    def shards(self) -> list[LocalShard]:
        return local_shards(self.data_dir or self.settings.data_dir)


def verify_store(asked: LocalData) -> None:
    """Check every file of every shard. Exit code 1: a shard is damaged."""
    reports = [(shard.name, shard.verify()) for shard in asked.shards()]
    damaged = sum(bool(report.findings) for _, report in reports)
    if asked.as_json:
        say_json({"shards": [_report_json(*one) for one in reports], "damaged": damaged})
    else:
        columns = ["shard", "pending", "runs", "segments", "covered", "watermark"]
        say_table(columns, [_row(*one) for one in reports])
        for name, report in reports:
            for finding in report.findings:
                say(f"{name}: {finding}")
        say(
            f"{damaged} of {len(reports)} shards are damaged."
            if damaged
            else "No shard is damaged."
        )
    raise typer.Exit(1 if damaged else 0)


def dump_store(
    asked: LocalData,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Print at most this many records of each shard.")
    ] = None,
) -> None:
    """Print the records on disk, by shard and due time.

    Cancelled, replaced and moved records are on disk until their old due. A running proxy has more
    records in memory."""
    for shard in asked.shards():
        for entry in islice(shard.entries(), limit):
            if asked.as_json:
                say_json(_entry_json(shard, entry))
            else:
                say("  ".join(_entry_cells(shard, entry)))


def _row(name: str, report: FolderReport) -> list[str]:
    watermark = shown_time(report.watermark_ms) if report.watermark_ms >= 0 else ""
    counts = (report.pending, report.runs, report.segments, report.covered)
    return [name, *(f"{count:,}" for count in counts), watermark]


def _report_json(name: str, report: FolderReport) -> dict[str, Any]:
    return {
        "shard": name,
        "folder": str(report.folder),
        "findings": report.findings,
        "pending": report.pending,
        "pending_bytes": report.pending_bytes,
        "pending_by_target": report.pending_by_target.by_name,
        "pending_for_other_targets": report.pending_by_target.others,
        "covered": report.covered,
        "watermark_ms": report.watermark_ms,
        "cursor": report.cursor,
    }


def _entry_json(shard: LocalShard, entry: Delivery | LeftInKafka) -> dict[str, Any]:
    fires_ms, offset, target, *_ = entry
    shown = {"shard": shard.name, "offset": offset, "fires_ms": fires_ms, "target": target}
    if isinstance(entry, LeftInKafka):
        return {**shown, "bytes_in_kafka": entry.size_bytes}
    return {
        **shown,
        "partition": None if entry.partition < 0 else entry.partition,
        "key": text_of(entry.key),
        "value": text_of(entry.value),
        "headers": {name: text_of(raw) for name, raw in entry.headers},
    }


def _entry_cells(shard: LocalShard, entry: Delivery | LeftInKafka) -> Iterator[str]:
    fires_ms, offset, target, *_ = entry
    yield from (shown_time(fires_ms), f"{shard.name}/{offset}", target)
    if isinstance(entry, LeftInKafka):
        yield f"{entry.size_bytes:,} bytes in Kafka"
    else:
        yield from (shown_bytes(entry.key), shown_bytes(entry.value))
