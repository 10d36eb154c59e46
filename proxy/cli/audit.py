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
"""Environment variable that passes the connection to the audit, because everybody on the machine
can see a command's arguments."""
SERVERS: Final = "bootstrap.servers"
ONCE, FOLLOWING = "spark_jobs.audit_delivery", "spark_jobs.continuous_audit"


# The fields have the names of the jobs' options (spark_jobs/arguments.py) and are passed on
# unchanged.


@dataclass(frozen=True, kw_only=True)
class EveryAudit:
    """Options of every audit."""

    output: str = option(
        "Folder or URI of the results. New results are added to it.",
        default="audit",
        metavar="DIR|URI",
    )
    target: list[str] | None = option(
        "Audit only this target topic, or targets that match this pattern. Repeatable."
    )
    max_lateness: list[str] | None = option(
        "Longest allowed lateness, like 2s. A later delivery is a violation. Repeatable.",
        metavar="[TARGET=]TIME",
    )
    master: str = option("Spark master URL.", default="local[*]")
    driver_memory: str = option("Memory of Spark's Java process.", default="4g")


@dataclass(frozen=True, kw_only=True)
class OneAudit:
    """Options of a single audit. They cannot be used with --follow."""

    at: int | None = option("Judge as of this time. Default: now.", metavar="EPOCH_MS")
    since: str | None = option(
        "Only records written at this time or later: epoch ms, RFC 3339 with a zone, or 2h ago."
    )
    until: str | None = option("Only records written before this time. Same forms as --since.")
    offsets: list[str] | None = option(
        "Only these ingress offsets. Once for each partition.", metavar="PARTITION:FIRST-LAST"
    )
    continue_: bool = flag("Continue after the last audit in --output, if there is one.")
    continue_from: str | None = option(
        "Continue after the last audit in this folder.", metavar="DIR|URI"
    )
    again: Path | None = option("Repeat the audit that wrote this repeat.json.", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class Following:
    """Options that can be used only with --follow."""

    every: int | None = option("With --follow: seconds between audits.", min=1, metavar="SECONDS")
    max_offsets: int | None = option(
        "With --follow: most records to read at once (default 2,000,000).", min=1, metavar="RECORDS"
    )
    metrics_host: str | None = option("With --follow: address for /metrics (default 127.0.0.1).")
    metrics_port: int | None = option("With --follow: port for /metrics; 0 for no metrics.")


def audit(
    asked: AtBroker,
    every_audit: EveryAudit,
    one_audit: OneAudit,
    following: Following,
    follow: Annotated[
        bool, typer.Option("--follow", help="Audit continuously until stopped.")
    ] = False,
) -> None:
    """Prove from the topics alone how every record ended (docs/audit.md).

    Exit code 2: there are violations. 3: there are none, but some records could not be judged."""
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
    """Return options as arguments. Omit None, False and empty lists. An option that is True has no
    value."""
    words = []
    for field, value in options.items():
        name = f"--{field.rstrip('_').replace('_', '-')}"
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            values = value if isinstance(value, list) else [value]
            words += [f"{name}={one}" for one in values]
    return words
