"""`store`: looks into the local data, without changing it."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from proxy.cli.local_shards import LocalShard, local_shards
from proxy.cli.terminal import (
    AsJson,
    Config,
    Utc,
    say,
    say_json,
    say_table,
    settings_for,
    show_utc,
    shown_bytes,
    shown_time,
    text_of,
)
from proxy.protocol.body import Delivery, LeftInKafka
from storage.tier import FolderReport

app = typer.Typer(help="The local data of a proxy, as it is on disk.", no_args_is_help=True)

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="The proxy's data folder; beats the settings.")
]


@app.command("verify")
def verify_store(data_dir: DataDir = None, config: Config = None, as_json: AsJson = False) -> None:
    """Check every file of every shard; exit code 1 when one is damaged."""
    reports = [(shard.name, shard.verify()) for shard in _shards(data_dir, config)]
    damaged = sum(bool(report.findings) for _, report in reports)
    if as_json:
        say_json({"shards": [_as_json(*one) for one in reports], "damaged": damaged})
    else:
        say_table(
            ["shard", "pending", "runs", "segments", "covered", "watermark"],
            [_row(*one) for one in reports],
        )
        for name, report in reports:
            for finding in report.findings:
                say(f"{name}: {finding}")
        say(f"{damaged} of {len(reports)} shards are damaged." if damaged else "All is well.")
    raise typer.Exit(1 if damaged else 0)


@app.command("dump")
def dump_store(
    data_dir: DataDir = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many a shard.")] = None,
    config: Config = None,
    as_json: AsJson = False,
    utc: Utc = False,
) -> None:
    """Print what waits on disk, by shard and due time; a running proxy has more in memory."""
    show_utc(is_wanted=utc)
    for shard in _shards(data_dir, config):
        for entry in islice(shard.entries(), limit):
            if as_json:
                say_json(_entry_json(shard, entry))
            else:
                say("  ".join(_entry_cells(shard, entry)))


def _shards(data_dir: Path | None, config: Path | None) -> list[LocalShard]:
    return local_shards(data_dir or settings_for(config).data_dir)


def _row(name: str, report: FolderReport) -> list[str]:
    watermark = shown_time(report.watermark_ms) if report.watermark_ms >= 0 else ""
    counts = (report.pending, report.runs, report.segments, report.covered)
    return [name, *(f"{count:,}" for count in counts), watermark]


def _as_json(name: str, report: FolderReport) -> dict[str, Any]:
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
    due_ms, offset, target, *_ = entry
    shown = {"shard": shard.name, "offset": offset, "due_ms": due_ms, "target": target}
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
    due_ms, offset, target, *_ = entry
    yield shown_time(due_ms)
    yield f"{shard.name}/{offset}"
    yield target
    if isinstance(entry, LeftInKafka):
        yield f"{entry.size_bytes:,} bytes in Kafka"
    else:
        yield shown_bytes(entry.key)
        yield shown_bytes(entry.value)
