"""`demo`: everything once, with a SIGKILL in the middle and the Spark audit at the end."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import typer

from proxy.cli.terminal.options import AsJson
from proxy.cli.terminal.output import say, say_json, say_table, waiting
from proxy.cli.terminal.stopping import StopAsked, stop_raises
from proxy.cli.trial.demo.audit_process import Audited, AuditProcess
from proxy.cli.trial.demo.group_result import FAULTS, GroupResult
from proxy.cli.trial.demo.plan import expected_verdicts
from proxy.cli.trial.demo.play import Play
from proxy.extras import how_to_get
from proxy.records.outcome import REQUEUED

COLUMNS = ["what", "sent", "arrived", "ended otherwise", "latest", "held"]
AUDIT_COLUMNS = ["verdict of the audit", "records", "violations"]
ALL = "all"
HELD = "Held: each exactly once, none early; half of them at most {p50:.0f} ms late."
NOT_HELD = "It did not hold."
AUDIT_RUNS = "Now the Spark audit, which knows only what lies in the topics …"
AUDIT_HELD = "Held: each record has one verdict, none is a violation."
WHY_LATE = "The latest had to wait: cold start, resume at a rate, restart after SIGKILL."


def demo(as_json: AsJson = False) -> None:
    """Broker, proxy, 150 records of every kind, a SIGKILL; the count, and the Spark audit."""
    with (
        exit_when_stopped(),
        tempfile.TemporaryDirectory(prefix="delay-proxy-demo-") as folder,
        (play := Play(Path(folder))).play() as (groups, audit),
    ):
        total = GroupResult()
        for result in groups.values():
            total.add(result)
        _say_groups({**groups, ALL: total})
        expected = {**expected_verdicts(play.plan), REQUEUED: total.ended[REQUEUED]}
        audited = _say_audit(audit, expected)
        shown = summary(groups, total, audited)
        if as_json:
            say_json(shown)
        raise typer.Exit(0 if shown["held"] else 1)


def _say_groups(rows: Mapping[str, GroupResult]) -> None:
    say_table(COLUMNS, [row(name, result) for name, result in rows.items()])
    total = rows[ALL]
    say(HELD.format(p50=median(total.lateness_ms)) if total.held else NOT_HELD)
    say(WHY_LATE)


def _say_audit(audit: AuditProcess | None, expected: Mapping[str, int]) -> Audited | None:
    """Wait for the audit's verdicts and show them; None where it is left out."""
    if audit is None:
        say(
            "The Spark audit is left out, and with it the comparison of contents: Spark is not "
            f"installed. {how_to_get('spark')}"
        )
        return None
    say(AUDIT_RUNS)
    with waiting("the Spark audit"):
        audited = audit.result(expected)
    say_table(AUDIT_COLUMNS, audited.rows())
    say(AUDIT_HELD if audited.held else NOT_HELD)
    for verdict, count in audited.unexpected.items():
        name, planned = verdict.replace("_", " "), expected.get(verdict, 0)
        say(f"{count} records are {name}, the plan expects {planned}.")
    return audited


@contextmanager
def exit_when_stopped() -> Iterator[None]:
    """Ctrl-C ends the demo with exit code 130, everything stopped and removed."""
    try:
        with stop_raises():
            yield
    except StopAsked:
        raise typer.Exit(130) from None


def row(name: str, result: GroupResult) -> list[str]:
    """A group for a person."""
    latest = f"{max(result.lateness_ms)} ms" if result.lateness_ms else ""
    faults = [f"{n} {fault}" for fault in FAULTS if (n := getattr(result, fault))]
    counts = [str(result.sent), str(result.arrived), _ended(name, result)]
    return [name, *counts, latest, ", ".join(faults) or "yes"]


def _ended(name: str, result: GroupResult) -> str:
    if name == ALL:
        return str(result.ended.total())
    counts = {"check-backs": result.checks, **result.ended}
    return ", ".join(what if n == 1 else f"{n} {what}" for what, n in counts.items() if n)


def summary(
    groups: Mapping[str, GroupResult], total: GroupResult, audited: Audited | None
) -> dict[str, Any]:
    """The whole demo for a program."""
    late = total.lateness_ms
    shown = {
        name: {
            "sent": one.sent,
            "to_arrive": one.to_arrive,
            "arrived": one.arrived,
            "ended": dict(one.ended),
            "held": one.held,
        }
        for name, one in groups.items()
    }
    return {
        "held": total.held and (audited is None or audited.held),
        "sent": total.sent,
        "to_arrive": total.to_arrive,
        "arrived": total.arrived,
        **{fault: getattr(total, fault) for fault in FAULTS},
        "altered": None if audited is None and not total.altered else total.altered,
        "lateness_ms": {"p50": median(late), "max": max(late)} if late else None,
        "ended": dict(total.ended),
        "check_backs": total.checks,
        "groups": shown,
        "audit": None if audited is None else audited.to_json(),
    }
