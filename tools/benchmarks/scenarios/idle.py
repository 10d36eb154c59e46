"""idle: nothing waits and nothing comes. What proxy and broker use all the same."""

import time
from dataclasses import dataclass, replace

from tools.benchmarks.accounting import Meter
from tools.benchmarks.trial import Trial, World, trial


@dataclass(frozen=True, slots=True)
class Idle:
    """`cores` by process; what else the machine did is `other_cores`. alone_cores: what the broker
    used before there was a proxy; None if that was not measured."""

    seconds: int
    cores: dict[str, float]
    other_cores: float
    alone_cores: float | None = None


def measure(world: World) -> Idle:
    """Once, on a proxy that has delivered some records and settled; and on the broker before."""
    seconds = world.scale.idle_s
    world.say(f"idle: nothing for {seconds} s without the proxy, and as long with it")
    time.sleep(world.scale.settle_s)
    meter = Meter({"broker": world.broker_pid})
    time.sleep(seconds)
    alone_s = meter.bill({}).cpu_s["broker"]
    with trial(world, "idle") as made:
        return replace(measure_idle(made), alone_cores=round(alone_s / seconds, 4))


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
