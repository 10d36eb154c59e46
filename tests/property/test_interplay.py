"""Everything at once, drawn from a seed: each record ends once, none early, none is rewritten for
ever.

Faults hide where operations meet. So each seed draws some kinds of steps and leaves others
out. With fewer kinds, each meets the others more often. One seed:

    python -m tests.property.test_interplay --from 17

Many seeds, with the shortest script that still fails for each seed that fails:

    python -m tests.property.test_interplay --seeds 50000

A fault can be planted (`tests.property.interplay.planted`) to show that the simulation finds it:

    python -m tests.property.test_interplay --planted recall --seeds 3000

The first seeds that found planted faults, counted from 0: recall 3, move 11, floor 55,
generation 453, catching up 6, missed 763.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Final

import pytest
import structlog

from tests.property.interplay.plan import Plan, draw
from tests.property.interplay.planted import PLANTED
from tests.property.interplay.play import play, playing
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import INGRESS

SEEDS_IN_SUITE: Final = 500
SEEDS_EACH: Final = 50


def shrunk(plan: Plan) -> Plan:
    script, size = list(plan.script), len(plan.script) // 2
    while size:
        start = 0
        while start < len(script):
            fewer = script[:start] + script[start + size :]
            if play(replace(plan, script=tuple(fewer))):
                script = fewer
            else:
                start += size
        size //= 2
    return replace(plan, script=tuple(script))


def trace(plan: Plan) -> Iterator[str]:
    yield f"seed {plan.seed}: {replace(plan, script=())}"
    yield from (f"  {step}" for step in plan.script)
    with playing(plan) as made:
        try:
            for step in plan.script:
                made.perform(step)
            made.finish()
        except Exception as error:  # noqa: BLE001 (it is told with the rest)
            yield f"  {type(error).__name__}: {error}"
        for record in made.kafka.read(INGRESS):
            headers = {
                n: (v or b"").decode()[:40] for n, v in record.headers_ if n != "timer-hop-mac"
            }
            at_ms = record.timestamp_ms - START_MS
            yield f"  {record.partition()}/{record.offset()} +{at_ms} {headers}"
        yield from (f"  {end}" for end in sorted(made.worlds[0].ends()))
        yield from (f"  WRONG {wrong}" for wrong in made.wrong())


@contextmanager
def _silent() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("first", range(0, SEEDS_IN_SUITE, SEEDS_EACH))
def test_every_record_ends_once_and_never_early_whatever_meets(first: int) -> None:
    """Invariant: each record ends once, not early, as the log says, with bounded rewrites."""
    with _silent():
        found = {seed: play(draw(seed)) for seed in range(first, first + SEEDS_EACH)}
    again = "python -m tests.property.test_interplay --from"
    failed = [f"{again} {seed}: {wrong[:3]}" for seed, wrong in found.items() if wrong]
    assert not failed, "\n".join(failed)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--as-drawn", action="store_true", help="do not look for a shorter script")
    parser.add_argument("--planted", choices=PLANTED, help="end with the first seed that finds it")
    asked = parser.parse_args(arguments)
    failed, began_s = 0, time.monotonic()
    with _silent(), PLANTED[asked.planted]() if asked.planted else nullcontext():
        for number, seed in enumerate(range(asked.first, asked.first + asked.seeds), 1):
            plan = draw(seed)
            if wrong := play(plan):
                failed += 1
                print(f"seed {seed}: {wrong[:3]}", flush=True)
                if asked.planted:
                    break
                print(*trace(plan if asked.as_drawn else shrunk(plan)), sep="\n", flush=True)
            if number % 500 == 0:
                took_s = time.monotonic() - began_s
                print(f"{number} seeds, {failed} failed, {took_s:.0f} s", flush=True)
    print(f"{asked.seeds} seeds from {asked.first}: {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
