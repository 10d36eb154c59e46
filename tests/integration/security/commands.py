"""Operator commands, run in this process with a proxy's settings file."""

from __future__ import annotations

import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

from proxy.cli.app import main
from tests.support.installation.proxy_process import ProxyProcess


@dataclass(frozen=True, slots=True)
class Said:
    """Exit code and whole output of a command."""

    code: int
    out: str
    err: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        found = json.loads(self.out)["findings"]
        return [finding for finding in found if finding["verdict"] != "ok"]

    @property
    def stops(self) -> list[str]:
        stops = [finding for finding in self.findings if finding["verdict"] == "stop"]
        return [f"{finding['found']}. {finding['remedy']}" for finding in stops]


def run_check(proxy: ProxyProcess) -> Said:
    return run_command(proxy, "check", "--json")


def run_command(proxy: ProxyProcess, *arguments: str) -> Said:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([*arguments, "--config", str(proxy.folder / "proxy.yaml")])
        except SystemExit as ended:
            return Said(int(ended.code or 0), out.getvalue(), err.getvalue())
