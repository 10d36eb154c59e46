"""idle: nothing waits and nothing comes. What proxy and broker use all the same."""

import time
from dataclasses import dataclass

from tests.benchmarks.trial import Trial, World, trial


@dataclass(frozen=True, slots=True)
class Idle:
    """`cores` by process; what else the machine did is `other_cores`."""

    seconds: int
    cores: dict[str, float]
    other_cores: float


def measure(world: World) -> Idle:
    """Once, on a proxy that has delivered some records and settled."""
    world.say(f"idle: nothing for {world.scale.idle_s} s")
    with trial(world, "idle") as made:
        return measure_idle(made)


def measure_idle(made: Trial) -> Idle:
    """Of a proxy that nothing else uses."""
    scale = made.world.scale
    time.sleep(scale.settle_s)
    meter = made.meter()
    time.sleep(scale.idle_s)
    bill = meter.bill({})
    made.proxy.wait_ready()
    cores = {name: round(used_s / scale.idle_s, 4) for name, used_s in bill.cpu_s.items()}
    return Idle(scale.idle_s, cores, bill.other_cores)
