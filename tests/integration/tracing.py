"""An operator traces records of an installation at the command line."""

from __future__ import annotations

import json
import os
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any
from unittest.mock import patch

from proxy.cli.app import main
from tests.integration.patience import patiently
from tests.support.installation.installation import Installation
from tests.support.records import Incoming, read_to_end
from tests.support.waiting import wait_for

HAPPENS_WITHIN_S = 180


@dataclass(frozen=True, slots=True)
class Told:
    code: int
    out: str
    err: str

    @property
    def story(self) -> dict[str, Any]:
        return dict(json.loads(self.out))

    @property
    def whats(self) -> list[str]:
        return [step["what"] for step in self.story["steps"]]

    def step(self, what: str) -> dict[str, Any]:
        return next(step for step in self.story["steps"] if step["what"] == what)


def run_command(installation: Installation, *arguments: str) -> Told:
    return patiently(arguments, lambda: _run(installation, *arguments))


def _run(installation: Installation, *arguments: str) -> Told:
    topics = installation.settings("one")["topics"]
    environment = {f"DELAY_PROXY_TOPICS__{role.upper()}": name for role, name in topics.items()}
    environment["DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS"] = installation.bootstrap
    out, err = StringIO(), StringIO()
    with patch.dict(os.environ, environment), redirect_stdout(out), redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as ended:
            return Told(int(ended.code or 0), out.getvalue(), err.getvalue())


def trace(installation: Installation, origin: str, *more: str) -> Told:
    return run_command(installation, "trace", origin, "--json", *more)


def in_ingress(installation: Installation, name: str, value: bytes) -> Incoming | None:
    records = read_to_end(installation.bootstrap, installation.ingress)
    found = (one for one in records if one.header(name) == value)
    return min(found, key=lambda one: one.offset, default=None)


def place(topic: str, record: Incoming) -> str:
    return f"{topic}/{record.partition}/{record.offset}"


def await_state(installation: Installation, origin: str, *states: str) -> Told:
    told: list[Told] = []

    def is_there() -> bool:
        told.append(trace(installation, origin))
        assert told[-1].code == 0, told[-1].err
        return told[-1].story["state"] in states

    wait_for(is_there, HAPPENS_WITHIN_S, f"{origin} to be {' or '.join(states)}")
    return told[-1]
