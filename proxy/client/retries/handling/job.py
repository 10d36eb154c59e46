"""One call of a handler, and what runs it: threads, or an event loop."""

from dataclasses import dataclass
from queue import SimpleQueue
from typing import NamedTuple, Protocol, TypeAlias

from proxy.client.retries.received import Received


@dataclass(eq=False, slots=True)
class Job:
    """A record that is being handled since `started_s`.

    `is_dropped`: its partition went to another consumer, so its end is nobody's business.
    """

    record: Received
    started_s: float
    is_dropped: bool = False


class Ended(NamedTuple):
    """A handler has returned, or raised `error`."""

    job: Job
    error: BaseException | None


EndedJobs: TypeAlias = SimpleQueue[Ended]
"""From the handlers, wherever they run, to the thread that polls."""


class Runner(Protocol):
    """Runs handlers, and puts into `ended` what becomes of each. None of its calls waits."""

    ended: EndedJobs

    def start(self, job: Job) -> None:
        """Call the handler."""

    def give_up(self, job: Job) -> None:
        """It takes too long: nobody waits for it any more. It may run on, and end yet."""

    def release(self, job: Job) -> None:
        """Its end has been taken note of."""

    def close(self) -> None:
        """No more jobs will be started."""
