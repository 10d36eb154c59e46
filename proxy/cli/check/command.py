"""`check`: what would stop the proxy, or lose a record, and what to do about it."""

from typing import Annotated

import typer

from proxy.cli.check.broker import broker_findings
from proxy.cli.check.findings import Finding, Severity
from proxy.cli.check.settings import settings_findings
from proxy.cli.terminal.options import AsJson, Bootstrap, Config, settings_for
from proxy.cli.terminal.output import say, say_json, say_table


def check(
    offline: Annotated[
        bool, typer.Option("--offline", help="Judge the settings alone; ask no broker.")
    ] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Judge the settings, and ask the broker what would stop the proxy.

    It asks for the broker's time by one record without a value in the settings topic. Compaction
    removes it. Nothing else is written.
    """
    settings = settings_for(config, bootstrap)
    findings = list(settings_findings(settings))
    if not offline and not _stops(findings):
        findings += broker_findings(settings)
    stops = _stops(findings)
    if as_json:
        say_json({"findings": [finding.as_json() for finding in findings], "stops": stops})
    else:
        say_table(["", "what", "found", "what to do"], [f.as_row() for f in findings])
        say(_summary(findings, stops))
    raise typer.Exit(1 if stops else 0)


def _stops(findings: list[Finding]) -> int:
    return sum(finding.severity is Severity.STOP for finding in findings)


def _summary(findings: list[Finding], stops: int) -> str:
    if stops:
        return f"{stops} of these would stop the proxy."
    warnings = sum(finding.severity is Severity.WARN for finding in findings)
    if warnings:
        return f"Nothing would stop the proxy; {warnings} of these should be looked at."
    return "Nothing would stop the proxy."
