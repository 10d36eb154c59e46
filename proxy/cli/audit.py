"""`audit`: the Spark audit, started as a separate program."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from proxy.cli.terminal import AtBroker, flag, option
from proxy.errors import require

KAFKA_VARIABLE: Final = "KAFKA_DELAY_PROXY_AUDIT_KAFKA"
"""Passes the connection. Arguments would be visible to everybody on the machine."""
SERVERS: Final = "bootstrap.servers"
ONCE, FOLLOWING = "spark_jobs.audit_delivery", "spark_jobs.continuous_audit"


# The fields have the names of the jobs' options (spark_jobs/arguments.py), and reach them as they
# are.


@dataclass(frozen=True, kw_only=True)
class EveryAudit:
    """Options of every audit."""

    output: str = option("Where the results are added.", default="audit", metavar="DIR|URI")
    target: list[str] | None = option(
        "A target topic or pattern; repeatable. Default: all asked for."
    )
    max_lateness: list[str] | None = option(
        "Later is a violation: 2s; repeatable.", metavar="[TARGET=]TIME"
    )
    master: str = option("Where Spark runs.", default="local[*]")
    driver_memory: str = option("Memory of Spark's Java process.", default="4g")


@dataclass(frozen=True, kw_only=True)
class OneAudit:
    """Options that do not go with --follow."""

    at: int | None = option("Judge as of then.", metavar="EPOCH_MS")
    since: str | None = option("Only records written from here on.")
    until: str | None = option("Only records written before.")
    offsets: list[str] | None = option(
        "Only these records; repeatable.", metavar="PARTITION:FIRST-LAST"
    )
    continue_: bool = flag("Read on from the last audit in --output, if any.")
    continue_from: str | None = option("Read on from the last audit there.", metavar="DIR|URI")
    again: Path | None = option("Make the audit of that evidence again.", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class Following:
    """Options that need --follow."""

    every: int | None = option("With --follow: how often.", min=1, metavar="SECONDS")
    max_offsets: int | None = option(
        "With --follow: so many are read at once (2,000,000).", min=1, metavar="RECORDS"
    )
    metrics_host: str | None = option("With --follow: where /metrics listens (127.0.0.1).")
    metrics_port: int | None = option("With --follow: where /metrics is; 0 for none.")


def audit(
    asked: AtBroker,
    every_audit: EveryAudit,
    one_audit: OneAudit,
    following: Following,
    follow: Annotated[
        bool, typer.Option("--follow", help="Audit as records end, until stopped.")
    ] = False,
) -> None:
    """Prove from the topics alone what became of every record (docs/audit.md).

    Exit code 2: violations; 3: none, but not all could be judged."""
    once = {**asdict(one_audit), "json": asked.as_json}
    if unfit := arguments(once if follow else asdict(following)):
        name = unfit[0].partition("=")[0]
        how = "does not go with" if follow else "needs"
        raise typer.BadParameter(f"{name} {how} --follow")
    require("spark", "The audit")
    settings = asked.settings
    topics = settings.topics
    options = {
        "bootstrap": settings.bootstrap_servers,
        "group": settings.group_id,
        "ingress": topics.ingress,
        "dead-letters": topics.dead_letters,
        "outcomes": topics.outcomes,
        "settings-topic": topics.settings,
        **asdict(every_audit),
        **({**asdict(following), "audit-topic": topics.audit} if follow else once),
    }
    program = [sys.executable, "-m", FOLLOWING if follow else ONCE, *arguments(options)]
    kafka = {name: str(value) for name, value in settings.kafka.items() if name != SERVERS}
    environment = {**os.environ, KAFKA_VARIABLE: json.dumps(kafka)}
    os.execve(sys.executable, program, environment)  # noqa: S606


def arguments(options: Mapping[str, object]) -> list[str]:
    """Return options as arguments. None, False and empty lists are omitted. True has no value."""
    words = []
    for field, value in options.items():
        name = f"--{field.rstrip('_').replace('_', '-')}"
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            values = value if isinstance(value, list) else [value]
            words += [f"{name}={one}" for one in values]
    return words
