"""`audit`: the Spark audit, started as a separate program."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from proxy.cli.terminal import AsJson, Bootstrap, Config, settings_for
from proxy.config.settings import Settings
from proxy.errors import require

KAFKA_VARIABLE: Final = "KAFKA_DELAY_PROXY_AUDIT_KAFKA"
"""Passes the connection. Arguments would be visible to everybody on the machine."""
SERVERS: Final = "bootstrap.servers"
ONCE, FOLLOWING = "spark_jobs.audit_delivery", "spark_jobs.continuous_audit"
TargetOption = Annotated[
    list[str] | None,
    typer.Option(help="A target topic or pattern; repeatable. Default: all asked for."),
]
Offsets = Annotated[
    list[str] | None,
    typer.Option(metavar="PARTITION:FIRST-LAST", help="Only these records; repeatable."),
]
MaxLateness = Annotated[
    list[str] | None,
    typer.Option(metavar="[TARGET=]TIME", help="Later is a violation: 2s; repeatable."),
]
MaxOffsets = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="RECORDS", help="With --follow: so many are read at once (2,000,000)."
    ),
]
Options = dict[str, object]
"""By name. None, False and empty lists are omitted. True has no value."""


def audit(
    output: Annotated[
        str, typer.Option("--output", metavar="DIR|URI", help="Where the results are added.")
    ] = "audit",
    bootstrap: Bootstrap = None,
    config: Config = None,
    target: TargetOption = None,
    at: Annotated[int | None, typer.Option(metavar="EPOCH_MS", help="Judge as of then.")] = None,
    since: Annotated[str | None, typer.Option(help="Only records written from here on.")] = None,
    until: Annotated[str | None, typer.Option(help="Only records written before.")] = None,
    offsets: Offsets = None,
    max_lateness: MaxLateness = None,
    go_on: Annotated[
        bool, typer.Option("--continue", help="Read on from the last audit in --output, if any.")
    ] = False,
    continue_from: Annotated[
        str | None, typer.Option(metavar="DIR|URI", help="Read on from the last audit there.")
    ] = None,
    again: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Make the audit of that evidence again.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Audit as records end, until stopped.")
    ] = False,
    every: Annotated[
        int | None, typer.Option(min=1, metavar="SECONDS", help="With --follow: how often.")
    ] = None,
    max_offsets: MaxOffsets = None,
    metrics_host: Annotated[
        str | None, typer.Option(help="With --follow: where /metrics listens (127.0.0.1).")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="With --follow: where /metrics is; 0 for none.")
    ] = None,
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    driver_memory: Annotated[str, typer.Option(help="Memory of Spark's Java process.")] = "4g",
    as_json: AsJson = False,
) -> None:
    """Prove from the topics alone what became of every record (docs/audit.md).

    Exit code 2: violations; 3: none, but not all could be judged."""
    once: Options = {"at": at, "since": since, "until": until, "offsets": offsets}
    once |= {"continue": go_on, "continue-from": continue_from, "again": again, "json": as_json}
    following: Options = {"every": every, "max-offsets": max_offsets}
    following |= {"metrics-host": metrics_host, "metrics-port": metrics_port}
    _check_fit(following if not follow else once, "needs" if not follow else "does not go with")
    require("spark", "The audit")
    where = {
        "output": output,
        "master": master,
        "driver-memory": driver_memory,
        "target": target,
        "max-lateness": max_lateness,
    }
    module, own = (FOLLOWING, following) if follow else (ONCE, once)
    settings = settings_for(config, bootstrap)
    following["audit-topic"] = settings.topics.audit
    program, environment = audit_command(settings, {**where, **own}, module)
    os.execve(sys.executable, program, environment)  # noqa: S606


def audit_command(
    settings: Settings, options: Options, module: str = ONCE
) -> tuple[list[str], dict[str, str]]:
    """Return the program and the environment of an audit."""
    given = arguments({**_names(settings), **options})
    return [sys.executable, "-m", module, *given], _environment(settings)


def arguments(options: Options) -> list[str]:
    """Return the options as arguments."""
    words = []
    for name, value in options.items():
        if value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False:
            values = value if isinstance(value, list) else [value]
            words += [f"--{name}={one}" for one in values]
    return words


def _check_fit(options: Options, how: str) -> None:
    for name, value in options.items():
        if value is not None and value is not False:
            raise typer.BadParameter(f"--{name} {how} --follow")


def _names(settings: Settings) -> Options:
    topics = settings.topics
    return {
        "bootstrap": settings.bootstrap_servers,
        "group": settings.group_id,
        "ingress": topics.ingress,
        "dead-letters": topics.dead_letters,
        "outcomes": topics.outcomes,
        "settings-topic": topics.settings,
    }


def _environment(settings: Settings) -> dict[str, str]:
    kafka = {name: str(value) for name, value in settings.kafka.items() if name != SERVERS}
    return {**os.environ, KAFKA_VARIABLE: json.dumps(kafka)}
