"""An operator at the command line with a dead-letter topic of their own, on a real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import patch

from confluent_kafka.cimpl import NewTopic

from proxy.cli.app import main
from tests.integration.patience import patiently
from tests.support.dead_letters import letter_headers
from tests.support.quiet_clients import admin_client
from tests.support.records import Headers, Incoming, Outgoing, new_topic, read_to_end, write

REPOSITORY = Path(__file__).parents[2]
COMMAND_LIMIT_S = 180
ROLES = ("ingress", "dead_letters", "outcomes", "settings")


@dataclass(frozen=True, slots=True)
class Said:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Operator:
    """An operator with topics that nobody else uses. Ingress and dead letters exist."""

    kafka: str
    ingress_config: Mapping[str, str] = field(default_factory=dict)
    settings_file: Path | None = None
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def __post_init__(self) -> None:
        self.create(self.ingress, 2, **self.ingress_config)
        self.create(self.dead_letters)
        self.orders = new_topic(self.kafka, "orders")

    @property
    def ingress(self) -> str:
        return f"operator-ingress-{self.mark}"

    @property
    def dead_letters(self) -> str:
        return f"operator-dead_letters-{self.mark}"

    @property
    def marks(self) -> str:
        return f"{self.dead_letters}.replayed"

    @property
    def environment(self) -> dict[str, str]:
        """Return the operator's settings as variables, or the path of the settings file."""
        if self.settings_file is not None:
            return {"DELAY_PROXY_CONFIG": str(self.settings_file)}
        topics = {f"DELAY_PROXY_TOPICS__{r.upper()}": f"operator-{r}-{self.mark}" for r in ROLES}
        return {
            "DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS": self.kafka,
            "DELAY_PROXY_TARGETS__DENY": "secret-*",
            **topics,
        }

    @property
    def edit(self) -> tuple[str, str]:
        return "--set", f"timer-topic={self.orders}"

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic without retention, unless configured otherwise (`a_b` is `a.b`)."""
        given = {name.replace("_", "."): text for name, text in config.items()}
        settings = {"retention.ms": "-1", **given}
        admin = admin_client(self.kafka)
        wanted = NewTopic(topic, partitions, 1, config=settings)
        admin.create_topics([wanted])[topic].result(COMMAND_LIMIT_S)

    def origin(self, number: int) -> str:
        return f"{self.ingress}/{number % 2}/{number}"

    def letters(self, count: int, more: Headers | None = None, value: bytes | None = b"v") -> None:
        """Write letters refused because of their target, with keys k0, k1, and so on."""
        write(self.kafka, self.dead_letters, [self.letter(n, more, value) for n in range(count)])

    def letter(
        self, number: int, more: Headers | None = None, value: bytes | None = b"v"
    ) -> Outgoing:
        headers = letter_headers(origin=self.origin(number), more=more)
        return Outgoing(b"k%d" % number, value, headers)

    def write(self, records: Sequence[Outgoing]) -> None:
        write(self.kafka, self.dead_letters, records)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start `dead-letters ...` as a process of its own, without a terminal."""
        return subprocess.Popen(
            [sys.executable, "-m", "proxy", "dead-letters", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def say(self, *arguments: str, **environment: str) -> Said:
        """Run `dead-letters ...` in this process: a new process starts too slowly."""
        return patiently(arguments, lambda: self._say(*arguments, **environment))

    def _say(self, *arguments: str, **environment: str) -> Said:
        out, err = TextIOWrapper(raw := BytesIO(), "utf-8", write_through=True), StringIO()
        settings = {**self.environment, **environment}
        with patch.dict(os.environ, settings), redirect_stdout(out), redirect_stderr(err):
            try:
                main(["dead-letters", *arguments])
            except SystemExit as ended:
                return Said(int(ended.code or 0), raw.getvalue().decode(), err.getvalue())

    def replay(self, *arguments: str) -> Said:
        return self.say("replay", "--yes", "--json", *self.edit, *arguments)

    def await_marks(self, at_least: int) -> None:
        """Return when this number of marks can be read, shortly after a replay."""
        read_to_end(self.kafka, self.marks, at_least)

    def run_python(self, script: str, *arguments: str) -> int:
        command = [sys.executable, "-c", script, *arguments]
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            command, cwd=REPOSITORY, env=environment, timeout=COMMAND_LIMIT_S, check=False
        ).returncode

    def sent_in(self, at_least: int = 0) -> list[Incoming]:
        return read_to_end(self.kafka, self.ingress, at_least)
