"""`audit`: runs the Spark audit, which shares no code with the proxy, as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from proxy.cli.options import AsJson, Bootstrap, Config, settings_for
from proxy.errors import ProxyError
from proxy.settings import Settings

KAFKA_VARIABLE: Final = "KAFKA_DELAY_PROXY_AUDIT_KAFKA"
"""How the connection reaches the audit: not by arguments, which all on the machine can see."""
SERVERS: Final = "bootstrap.servers"
HOW_TO_GET_SPARK: Final = "Install it: pip install 'kafka-delay-proxy[spark]'."


class SparkMissing(ProxyError):
    """The audit's packages are not installed."""


def audit(
    output: Annotated[
        Path, typer.Option("--output", metavar="DIR", help="The folder of the results.")
    ] = Path("audit"),
    bootstrap: Bootstrap = None,
    config: Config = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="A target topic or pattern; repeatable. Default: all asked for."),
    ] = None,
    at: Annotated[int | None, typer.Option(metavar="EPOCH_MS", help="Judge as of then.")] = None,
    since: Annotated[str | None, typer.Option(help="Only records written from here on.")] = None,
    until: Annotated[str | None, typer.Option(help="Only records written before.")] = None,
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    driver_memory: Annotated[str, typer.Option(help="Memory of Spark's Java process.")] = "4g",
    as_json: AsJson = False,
) -> None:
    """Prove from the topics alone what became of every record (docs/audit.md); 2: violations."""
    if not has_spark():
        raise SparkMissing("The audit needs Spark, which is not installed.", HOW_TO_GET_SPARK)
    settings = settings_for(config, bootstrap)
    optional = {"--at": at, "--since": since, "--until": until}
    given = [
        *(f"--target={name}" for name in target or ()),
        *(f"{name}={value}" for name, value in optional.items() if value is not None),
        *(["--json"] if as_json else []),
    ]
    given += [f"--master={master}", f"--driver-memory={driver_memory}"]
    command, environment = audit_command(settings, output, given)
    raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)


def has_spark() -> bool:
    """Whether the audit's packages are installed."""
    return find_spec("pyspark") is not None


def audit_command(
    settings: Settings, output: Path, options: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """The audit of what these settings name, as a program and its environment."""
    program = [sys.executable, "-m", "spark_jobs.audit_delivery", f"--output={output}"]
    return [*program, *_names(settings), *options], _environment(settings)


def _names(settings: Settings) -> list[str]:
    topics = settings.topics
    return [
        f"--bootstrap={settings.bootstrap_servers}",
        f"--group={settings.group_id}",
        f"--ingress={topics.ingress}",
        f"--dead-letters={topics.dead_letters}",
        f"--outcomes={topics.outcomes}",
        f"--settings-topic={topics.settings}",
    ]


def _environment(settings: Settings) -> dict[str, str]:
    kafka = {name: str(value) for name, value in settings.kafka.items() if name != SERVERS}
    return {**os.environ, KAFKA_VARIABLE: json.dumps(kafka)}
