"""Jobs for runners of handlers, with the handlers' results."""

from __future__ import annotations

from queue import Empty, SimpleQueue

from kafka_delay.handlers import Handling, Job
from kafka_delay.kafka import Place
from kafka_delay.retries import Received

WITHIN_S = 60.0
PLACE = Place("orders", 0, 0)


class Work(Handling):
    """A number of jobs and their results. The named one was given up."""

    def __init__(self, count: int, given_up: int | None = None) -> None:
        record = Received(PLACE, PLACE, 0, None, b"v", [], 0)
        self.jobs = [Job(record) for _ in range(count)]
        self._left = SimpleQueue[Job]()
        for job in self.jobs:
            self.put(job)
        self._hung = None if given_up is None else self.jobs[given_up]
        self.ended = SimpleQueue[tuple[Job, BaseException | None]]()

    def put(self, job: Job) -> None:
        self._left.put(job)

    def take(self) -> Job | None:
        try:
            return self._left.get_nowait()
        except Empty:
            return None

    def end(self, job: Job, error: BaseException | None) -> bool:
        self.ended.put((job, error))
        return job is not self._hung

    def errors(self) -> list[BaseException | None]:
        return [self.ended.get(timeout=WITHIN_S)[1] for _ in self.jobs]
