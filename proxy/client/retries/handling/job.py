"""One call of a handler, and what makes such calls: threads, or an event loop."""

from dataclasses import dataclass
from typing import Protocol

from proxy.client.retries.received import Received


@dataclass(eq=False, slots=True)
class Job:
    """A record that is being handled since `started_s`.

    `is_dropped`: its partition went to another consumer, so its end is nobody's business, unless it
    ends the consumer.
    """

    record: Received
    started_s: float
    is_dropped: bool = False


class Jobs(Protocol):
    """Where those who call handlers get their work. For any thread; no call waits."""

    def take(self) -> Job | None:
        """The next job; None when there is none now, or enough are at work."""

    def end(self, job: Job, error: BaseException | None) -> bool:
        """The handler has returned, or raised. False: the job had been given up before."""


class Runner(Protocol):
    """Calls handlers. None of its calls waits."""

    def wake(self, jobs: Jobs) -> None:
        """There may be jobs to take."""

    def give_up(self, job: Job) -> None:
        """It takes too long: nobody waits for it any more. It may run on, and end yet."""

    def close(self) -> None:
        """No more jobs will be taken."""
