"""How long the steps of a worker's loop take, for Prometheus."""

from collections.abc import Callable
from typing import Final, Literal, TypeVar, TypeVarTuple, get_args

from prometheus_client import CollectorRegistry, Histogram

Step = Literal["fetch", "confirm", "put", "due", "publish", "tidy", "answer", "look"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)
"""The last two are steps of `proxy.session.session`, all others of `proxy.session.pipeline`."""
STEP_BOUNDS_S: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class LoopSteps:
    """A histogram of one worker over all its sessions. Each step has its series from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        seconds = Histogram(
            "delay_proxy_loop_step_seconds",
            "How long a step of the loop took.",
            ["step"],
            buckets=STEP_BOUNDS_S,
            registry=registry,
        )
        self._seconds = {step: seconds.labels(step) for step in STEPS}

    def timed(
        self, step: Step, do: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Return or raise what `do` does, and count the time that it took."""
        with self._seconds[step].time():
            return do(*arguments)
