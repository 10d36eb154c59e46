"""The calls about dead letters: which there are, one of them, and sending them in again."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from proxy.admin.dead_letters.letter_queries import (
    FILTERS,
    cursor_of,
    ends_of,
    group_of,
    selection_by,
)
from proxy.admin.dead_letters.letter_replies import (
    LetterTopic,
    ListedPage,
    SeenLetter,
    letter_json,
    summary_json,
    topics_json,
)
from proxy.admin.dead_letters.replay_jobs import Replaying, ReplayJob, ReplayJobs
from proxy.admin.dead_letters.wanted_replay import ReplayBody, wanted_by
from proxy.admin.exchange import Problem, Reply, Request, as_json
from proxy.admin.listing.filters import RECORDS, limit_of
from proxy.admin.query_values import place_in_path, read_body, wait_s_of
from proxy.clock import wall_clock_ms
from proxy.config.settings import TopicSettings
from proxy.dead_letters.letter import Place
from proxy.dead_letters.replay_plan import Selection

READINGS_AT_ONCE: Final = 2


class LettersPort(Protocol):
    """What the calls ask of `kafka_letters.KafkaLetters`. Raises Problem."""

    def topics(self) -> Sequence[LetterTopic]: ...
    def page(
        self, group: str | None, selection: Selection, ends: dict[int, int], limit: int
    ) -> ListedPage: ...
    def letter(self, group: str | None, place: Place) -> SeenLetter: ...
    @property
    def replay(self) -> Replaying: ...


class LetterCalls:
    """Raises Problem. READINGS_AT_ONCE lists and letters are read at a time, beside replays."""

    def __init__(self, names: TopicSettings, letters: LettersPort) -> None:
        self._names, self._letters = names, letters
        self._free = threading.BoundedSemaphore(READINGS_AT_ONCE)
        self._jobs = ReplayJobs(letters.replay, wall_clock_ms)

    def topics(self, request: Request) -> Reply:
        """In which topics dead letters can be."""
        request.query()
        with self._reading():
            return as_json(200, topics_json(self._letters.topics()))

    def page(self, request: Request) -> Reply:
        """One page of dead letters, the newest first."""
        query = request.query("topic", *FILTERS, "limit", "cursor")
        topic = query.get("topic", self._names.dead_letters)
        group = group_of(topic, self._names)
        selection, ends = selection_by(query, group), ends_of(query.get("cursor"))
        limit = limit_of(query.get("limit", RECORDS))
        with self._reading():
            page, marks = self._letters.page(group, selection, ends, limit)
        reply = {
            "topic": topic,
            "letters": [summary_json(one, marks) for one in page.letters],
            "replays_known": marks is not None,
            "cursor": cursor_of(page.ends),
        }
        return as_json(200, reply)

    def letter(self, request: Request, topic: str, partition: str, offset: str) -> Reply:
        """Everything about one."""
        request.query()
        place, group = Place(*place_in_path(partition, offset)), group_of(topic, self._names)
        with self._reading():
            return as_json(200, letter_json(topic, self._letters.letter(group, place)))

    def replay(self, request: Request) -> Reply:
        """Begin a replay, or a dry run, and wait for its end as long as is wanted."""
        wait_s = wait_s_of(request.query("wait").get("wait", "0s"))
        job = self._jobs.start(wanted_by(read_body(ReplayBody, request.json()), self._names))
        return _shown(job, wait_s)

    def follow(self, request: Request, ident: str) -> Reply:
        """How far it is."""
        return _shown(self._jobs.find(ident), wait_s_of(request.query("wait").get("wait", "0s")))

    def stop(self, request: Request, ident: str) -> Reply:
        """End it after the batch in hand."""
        wait_s = wait_s_of(request.query("wait").get("wait", "0s"))
        job = self._jobs.find(ident)
        job.stop()
        return _shown(job, wait_s)

    def close(self) -> None:
        """The admin port closes."""
        self._jobs.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        if not self._free.acquire(blocking=False):
            detail = "Others are reading dead letters at this moment; try again."
            raise Problem(503, "busy", detail)
        try:
            yield
        finally:
            self._free.release()


def _shown(job: ReplayJob, wait_s: float) -> Reply:
    """200 once it has ended, 202 while it goes on."""
    job.wait(wait_s)
    shown = job.shown()
    return as_json(202 if shown["state"] == "running" else 200, shown)
