"""The command line that the jobs share: what an option is called, takes and means stands here."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from proxy.plain_text import plain_lines, show_any_text
from spark_jobs.circumstances import LatenessLimits, lateness_limits
from spark_jobs.kafka.positions import LAST_OFFSET, OffsetRange
from spark_jobs.runtime.errors import AuditError
from spark_jobs.runtime.frames import Location, location

AGO: Final = re.compile(r"([0-9]{1,9})([smhd]) ago")
OFFSETS: Final = re.compile(
    r"(?P<partition>[0-9]{1,9}):(?P<first>[0-9]{1,18})(?P<on>-(?P<last>[0-9]{1,18})?)?"
)
SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def epoch_ms(text: str) -> int:
    """Epoch milliseconds from digits, from RFC 3339 with a zone, or from `90m ago`."""
    if text.isascii() and text.isdigit():
        return int(text)
    if ago := AGO.fullmatch(text):
        return round((time.time() - int(ago[1]) * SECONDS[ago[2]]) * 1000)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise typer.BadParameter(
            f"{text} is neither epoch milliseconds nor a time like 2026-01-01T09:00:00Z or 2h ago"
        )
    return round(at.timestamp() * 1000)


def offset_ranges(texts: Iterable[str]) -> dict[int, OffsetRange]:
    """By partition, from `3:100-199`, `3:100-` (to the end) or `3:100` (this one)."""
    found: dict[int, OffsetRange] = {}
    for text in texts:
        partition, asked = _offset_range(text)
        if partition in found:
            raise typer.BadParameter(f"partition {partition} is named twice: one range for each")
        found[partition] = asked
    return found


def _offset_range(text: str) -> tuple[int, OffsetRange]:
    if found := OFFSETS.fullmatch(text):
        first = int(found["first"])
        last = int(found["last"] or (LAST_OFFSET - 1 if found["on"] else first))
        if first <= last:
            return int(found["partition"]), (first, last + 1)
    raise typer.BadParameter(
        f"{text} is no range of offsets: write PARTITION:FIRST-LAST, such as 3:100-199, "
        "3:100- for all from there on, or 3:100 for that one"
    )


def limits(texts: Iterable[str]) -> LatenessLimits:
    """How late deliveries may be, from `2s` and `orders-*=500ms`."""
    try:
        return lateness_limits(texts)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Bootstrap = Annotated[str, typer.Option(help="Kafka's bootstrap servers.")]
Kafka = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="A librdkafka setting, as in the proxy's own settings (TLS, SASL); java.KEY=VALUE for "
        "Spark's Java client alone. Repeatable.",
    ),
]
Group = Annotated[str, typer.Option(help="The proxy's group_id.")]
Ingress = Annotated[str, typer.Option(help="The ingress topic.")]
DeadLetters = Annotated[str, typer.Option(help="The dead-letter topic.")]
Outcomes = Annotated[str, typer.Option(help="The outcome topic.")]
SettingsTopic = Annotated[str, typer.Option(help="The settings topic.")]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        help="A target topic, or a shell pattern; repeatable. Default: all that the ingress asks "
        "for and that exist."
    ),
]
At = Annotated[
    int | None,
    typer.Option(
        metavar="EPOCH_MS",
        help="Judge as of this moment: what was due later is pending. Default: now.",
    ),
]
Since = Annotated[
    int | None,
    typer.Option(
        parser=epoch_ms,
        metavar="TIME",
        help="Only ingress records written from here on: epoch ms, RFC 3339 with zone, or 2h ago.",
    ),
]
Until = Annotated[
    int | None,
    typer.Option(
        parser=epoch_ms,
        metavar="TIME",
        help="Only ingress records written before: epoch ms, RFC 3339 with a zone, or 2h ago.",
    ),
]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PARTITION:FIRST-LAST",
        help="Only these ingress offsets: 3:100-199, 3:100- or 3:100; once for each partition.",
    ),
]
MaxLateness = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[TARGET=]TIME",
        help="Later is a violation: 2s for all targets, orders-*=500ms for some; repeatable.",
    ),
]
GoOn = Annotated[
    bool,
    typer.Option("--continue", help="Read on from the last audit in --output, if there is one."),
]
ContinueFrom = Annotated[
    Location | None,
    typer.Option(
        parser=location,
        metavar="DIR|URI",
        help="Read on from the last audit there; --output gets what it left open.",
    ),
]
Output = Annotated[
    Location,
    typer.Option(
        parser=location, metavar="DIR|URI", help="Where the results are added to those of others."
    ),
]
Again = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Make the audit again that wrote this evidence.json; exit code 1 if it comes out "
        "otherwise.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Master = Annotated[str, typer.Option(help="Where Spark runs; spark-submit's own wins.")]
DriverMemory = Annotated[str, typer.Option(help="Memory of Spark's Java process.")]
AuditTopic = Annotated[str, typer.Option(help="Where the totals go, compacted; '' for nowhere.")]
Every = Annotated[int, typer.Option(min=1, metavar="SECONDS", help="An audit so often.")]
MaxOffsets = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="RECORDS",
        help="At most so many are read at once: what is more is read in portions, each kept, "
        "before it is judged.",
    ),
]
KeepHours = Annotated[
    int, typer.Option(min=1, metavar="HOURS", help="How long verdicts stay; violations always do.")
]
MetricsHost = Annotated[str, typer.Option(help="Where /metrics listens.")]
MetricsPort = Annotated[int, typer.Option(min=0, max=65_535, help="0 for no metrics.")]


@contextmanager
def readable_errors() -> Iterator[None]:
    """Print an `AuditError` as its sentences on stderr and end with its exit code."""
    try:
        yield
    except AuditError as error:
        print(plain_lines(f"Error: {error}"), file=sys.stderr)
        raise typer.Exit(error.exit_code) from error


def run(command: Callable[..., None]) -> None:
    """Run a job's `main` on this process's command line. Its files are for this user alone."""
    os.umask(0o077)
    show_any_text()
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(command)
    app()
