"""What a person sees of a worker's turns: a table of the steps, and one of the longest turns."""

from collections.abc import Mapping
from typing import Any, Final

from proxy.cli.terminal.output import say, say_table, shown_time

STEPS: Final = {
    "fetch": "fetch (waiting included)",
    "confirm": "confirm (the broker's answer)",
    "answer": "answer (the admin port)",
    "look": "look (status, metrics)",
    "other": "other (between steps)",
}
STEP_COLUMNS: Final = ("step", "turns", "share", "p50 ms", "p99 ms", "p99.9 ms", "max ms")
TURN_COLUMNS: Final = ("began", "ms", "on a CPU", "fetched", "ended", "steps, ms")
SHOWN_SHARE: Final = 0.02
"""A step with less of a turn is not named."""


def say_worker(worker: Mapping[str, Any]) -> None:
    """Both tables, and what its loop is doing."""
    doing = worker["doing"]
    say(
        f"{worker['name']}: {worker['turns']:,} turns in {worker['seconds']:.1f} s, "
        f"{worker['cpu_share']:.0%} of a CPU; "
        f"{worker['fetched']:,} records fetched, {worker['ended']:,} ended; "
        f"now: {doing['step']}, for {doing['ms']:,.1f} ms"
    )
    say("")
    whole = {**worker["busy"], "step": "whole turn, without waiting"}
    say_table(STEP_COLUMNS, map(_step_row, [*worker["steps"], whole]), whole=STEP_COLUMNS)
    say("", "The longest, without waiting for a record:")
    say_table(TURN_COLUMNS, map(_turn_row, worker["longest"]), whole=TURN_COLUMNS[:-1])
    say("")


def _step_row(step: Mapping[str, Any]) -> list[str]:
    lengths = [f"{step[name]:,.1f}" for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")]
    name = STEPS.get(step["step"], step["step"])
    return [name, f"{step['turns']:,}", f"{step['share']:.1%}", *lengths]


def _turn_row(turn: Mapping[str, Any]) -> list[str]:
    return [
        shown_time(turn["at"]),
        f"{turn['busy_ms']:,.1f}",
        "" if turn["cpu_ms"] is None else f"{turn['cpu_ms']:,.1f}",
        f"{turn['fetched']:,}",
        f"{turn['ended']:,}",
        _parts(turn),
    ]


def _parts(turn: Mapping[str, Any]) -> str:
    """The steps that made it long, the longest first; of fetch what went beyond its wait."""
    waited_ms = turn["ms"] - turn["busy_ms"]
    steps = {**turn["steps"], "fetch": turn["steps"]["fetch"] - waited_ms}
    longest = sorted(steps.items(), key=lambda step: -step[1])
    least_ms = SHOWN_SHARE * turn["busy_ms"]
    return ", ".join(f"{name} {took_ms:,.1f}" for name, took_ms in longest if took_ms > least_ms)
