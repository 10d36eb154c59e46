"""Scenario idle: CPU of proxy and broker without pending or new records."""

import time
from dataclasses import dataclass, replace

from tools.benchmarks.accounting import Meter
from tools.benchmarks.trial import Trial, World, trial


@dataclass(frozen=True, slots=True)
class Idle:
    """Cores in use by process. `other_cores` is the use by all other processes. `alone_cores` is
    the use by a broker without a proxy, None if it was not measured."""

    seconds: int
    cores: dict[str, float]
    other_cores: float
    alone_cores: float | None = None


def measure(world: World) -> Idle:
    seconds = world.scale.idle_s
    world.say(f"idle: no records for {seconds} s without the proxy, then for {seconds} s with it")
    time.sleep(world.scale.settle_s)
    meter = Meter({"broker": world.broker_pid})
    time.sleep(seconds)
    alone_s = meter.bill({}).cpu_s["broker"]
    with trial(world, "idle") as made:
        return replace(measure_idle(made), alone_cores=round(alone_s / seconds, 4))


def measure_idle(made: Trial) -> Idle:
    scale = made.world.scale
    time.sleep(scale.settle_s)
    meter = made.meter()
    time.sleep(scale.idle_s)
    bill = meter.bill({})
    made.proxy.wait_ready()
    cores = {name: round(used_s / scale.idle_s, 4) for name, used_s in bill.cpu_s.items()}
    return Idle(scale.idle_s, cores, bill.other_cores)
