"""`demo`: everything once, in about a minute, with a SIGKILL in the middle."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import typer

from proxy.cli.demo_judge import FAULTS, Verdict
from proxy.cli.options import AsJson
from proxy.cli.output import say, say_json, say_table
from proxy.cli.stopping import StopAsked, stop_raises

COLUMNS = ["what", "sent", "arrived", "ended otherwise", "late p50 / max", "held"]
ALL = "all"
HELD = "Held: each exactly once, none early."
WHY_LATE = "(The latest waited for a cold start, or for the restart after SIGKILL.)"


def demo(as_json: AsJson = False) -> None:
    """Broker, proxy, 120 records of every kind, a SIGKILL, and the count: each exactly once."""
    from proxy.cli.demo_play import Play

    with suppress_stop(), tempfile.TemporaryDirectory(prefix="delay-proxy-demo-") as folder:
        verdicts = Play(Path(folder)).play()
        total = Verdict()
        for verdict in verdicts.values():
            total.add(verdict)
        rows = {**verdicts, ALL: total}
        say_table(COLUMNS, [row(name, verdict) for name, verdict in rows.items()])
        say(f"{HELD} {WHY_LATE}" if total.held else "It did not hold.")
        if as_json:
            say_json(summary(verdicts, total))
        raise typer.Exit(0 if total.held else 1)


@contextmanager
def suppress_stop() -> Iterator[None]:
    """Ctrl-C ends the demo with exit code 130, everything stopped and removed."""
    try:
        with stop_raises():
            yield
    except StopAsked:
        raise typer.Exit(130) from None


def row(name: str, verdict: Verdict) -> list[str]:
    """A group for a person."""
    late = verdict.lateness_ms
    lateness = f"{median(late):.0f} / {max(late)} ms" if late else ""
    faults = [f"{n} {fault}" for fault in FAULTS if (n := getattr(verdict, fault))]
    counts = [str(verdict.sent), str(verdict.arrived), _ended(name, verdict)]
    return [name, *counts, lateness, ", ".join(faults) or "yes"]


def _ended(name: str, verdict: Verdict) -> str:
    if name == ALL:
        return str(verdict.ended.total())
    counts = {"check-backs": verdict.checks, **verdict.ended}
    return ", ".join(what if n == 1 else f"{n} {what}" for what, n in counts.items() if n)


def summary(verdicts: Mapping[str, Verdict], total: Verdict) -> dict[str, Any]:
    """The whole demo for a program."""
    late = total.lateness_ms
    groups = {
        name: {
            "sent": one.sent,
            "to_arrive": one.to_arrive,
            "arrived": one.arrived,
            "ended": dict(one.ended),
            "held": one.held,
        }
        for name, one in verdicts.items()
    }
    return {
        "held": total.held,
        "sent": total.sent,
        "to_arrive": total.to_arrive,
        "arrived": total.arrived,
        **{fault: getattr(total, fault) for fault in FAULTS},
        "lateness_ms": {"p50": median(late), "max": max(late)} if late else None,
        "ended": dict(total.ended),
        "check_backs": total.checks,
        "groups": groups,
    }
