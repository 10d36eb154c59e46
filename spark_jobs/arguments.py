"""Command-line options of all audit jobs."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from proxy.logs import configure_logs, plain_lines, show_any_text
from spark_jobs.audit_scope import LatenessLimits, lateness_limits
from spark_jobs.histories.job import AuditJob
from spark_jobs.kafka.broker import kafka_settings
from spark_jobs.kafka.snapshot import LAST_OFFSET, OffsetRange, OwnTopics
from spark_jobs.runtime.errors import AuditError
from spark_jobs.runtime.frames import Location, location

AGO: Final = re.compile(r"([0-9]{1,9})([smhd]) ago")
OFFSETS: Final = re.compile(
    r"(?P<partition>[0-9]{1,9}):(?P<first>[0-9]{1,18})(?P<on>-(?P<last>[0-9]{1,18})?)?"
)
SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def epoch_ms(text: str) -> int:
    """Parse epoch milliseconds, RFC 3339 with a zone, or `90m ago`. Return epoch ms."""
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
    """Parse `3:100-199`, `3:100-` (to the end) or `3:100`. Return offset ranges by partition."""
    ranges: dict[int, OffsetRange] = {}
    for text in texts:
        found = OFFSETS.fullmatch(text)
        first = int(found["first"]) if found else 0
        last = int(found["last"] or (LAST_OFFSET - 1 if found["on"] else first)) if found else -1
        if found is None or last < first:
            raise typer.BadParameter(
                f"{text} is not a range of offsets: write PARTITION:FIRST-LAST, such as 3:100-199, "
                "3:100- (to the end) or 3:100 (one offset)"
            )
        partition = int(found["partition"])
        if partition in ranges:
            raise typer.BadParameter(
                f"partition {partition} is named twice: give one range for each partition"
            )
        ranges[partition] = first, last + 1
    return ranges


def limits(texts: Iterable[str]) -> LatenessLimits:
    """Parse texts like `2s` and `orders-*=500ms`. Return the lateness limits."""
    try:
        return lateness_limits(texts)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Output = Annotated[
    Location,
    typer.Option(
        parser=location,
        metavar="DIR|URI",
        help="Folder or URI of the results. New results are added to it.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Master = Annotated[str, typer.Option(help="Spark master URL. The master of spark-submit wins.")]
DriverMemory = Annotated[str, typer.Option(help="Memory of Spark's Java process.")]


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The options of every audit."""

    output: Output
    bootstrap: Annotated[str, typer.Option(help="Kafka's bootstrap servers.")] = "localhost:9092"
    kafka: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A librdkafka setting, as in the proxy's own settings (TLS, SASL). java.KEY=VALUE "
            "sets it only for Spark's Java client. Repeatable.",
        ),
    ] = None
    group: Annotated[str, typer.Option(help="The proxy's group_id.")] = "delay-proxy"
    ingress: Annotated[str, typer.Option(help="The ingress topic.")] = "timer.ingress"
    dead_letters: Annotated[str, typer.Option(help="The dead-letter topic.")] = "timer.dead-letters"
    outcomes: Annotated[str, typer.Option(help="The outcome topic.")] = "timer.outcomes"
    settings_topic: Annotated[str, typer.Option(help="The settings topic.")] = "timer.settings"
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Audit only this target topic, or the targets that match this shell pattern. "
            "Repeatable. Default: all existing targets of the ingress records."
        ),
    ] = None
    max_lateness: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TARGET=]TIME",
            help="Longest allowed lateness: 2s for all targets, orders-*=500ms for some. A later "
            "delivery is a violation. Repeatable.",
        ),
    ] = None
    master: Master = "local[*]"
    driver_memory: DriverMemory = "4g"

    def job(self) -> AuditJob:
        return AuditJob(
            kafka_settings(self.bootstrap, self.kafka or ()),
            self.group,
            OwnTopics(self.ingress, self.dead_letters, self.outcomes, self.settings_topic),
            self.target or (),
            self.output,
            limits=limits(self.max_lateness or ()),
        )


At = Annotated[
    int | None,
    typer.Option(
        metavar="EPOCH_MS",
        help="Judge as of this time. Records that are due later count as pending. Default: now.",
    ),
]
Since = Annotated[
    int | None,
    typer.Option(
        parser=epoch_ms,
        metavar="TIME",
        help="Only ingress records written at this time or later: epoch ms, RFC 3339 with a zone, "
        "or 2h ago.",
    ),
]
Until = Annotated[
    int | None,
    typer.Option(
        parser=epoch_ms,
        metavar="TIME",
        help="Only ingress records written before this time. Same forms as --since.",
    ),
]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PARTITION:FIRST-LAST",
        help="Only these ingress offsets: 3:100-199, 3:100- or 3:100. Once for each partition.",
    ),
]
GoOn = Annotated[
    bool,
    typer.Option("--continue", help="Continue after the last audit in --output, if there is one."),
]
ContinueFrom = Annotated[
    Location | None,
    typer.Option(
        parser=location,
        metavar="DIR|URI",
        help="Continue after the last audit in this folder. Its open records go to --output.",
    ),
]
Again = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Repeat the audit that wrote this repeat.json. Exit code 1: the results differ.",
    ),
]
AuditTopic = Annotated[str, typer.Option(help="Compacted topic for the totals. '' for none.")]
Every = Annotated[int, typer.Option(min=1, metavar="SECONDS", help="Seconds between audits.")]
MaxOffsets = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="RECORDS",
        help="Read at most this many records at once. More records are read in portions. Each "
        "portion is stored before the records are judged.",
    ),
]
KeepHours = Annotated[
    int,
    typer.Option(
        min=1, metavar="HOURS", help="Hours to keep verdicts. Violations are always kept."
    ),
]
MetricsHost = Annotated[str, typer.Option(help="Address for /metrics.")]
MetricsPort = Annotated[
    int, typer.Option(min=0, max=65_535, help="Port for /metrics. 0: no metrics.")
]


@contextmanager
def readable_errors() -> Iterator[None]:
    """Print an `AuditError` on stderr and exit with its code."""
    try:
        yield
    except AuditError as error:
        print(plain_lines(f"Error: {error}"), file=sys.stderr)
        raise typer.Exit(error.exit_code) from error


def with_audit_options(main: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of `AuditOptions` and its own options.

    `main` receives the `AuditOptions` as its first argument."""
    shared = signature(AuditOptions).parameters
    own = [*signature(main).parameters.values()][1:]

    @wraps(main)
    def command(**given: Any) -> None:
        options = AuditOptions(**{name: given.pop(name) for name in shared})
        main(options, **given)

    every = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in (*shared.values(), *own)]
    command.__signature__ = Signature(every)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in every}
    return command


def run(command: Callable[..., None]) -> None:
    """Run a job's `main` with this process's arguments. Only the user may read the job's files."""
    os.umask(0o077)
    show_any_text()
    configure_logs("warning", "auto")
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(command)
    app()
