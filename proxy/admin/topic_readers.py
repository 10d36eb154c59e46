"""Reading of dead letters and traces from topics, and replays. All calls raise Problem."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from proxy.admin.broker_access import CHANGES_PARTITION
from proxy.admin.changes import Change, read_change
from proxy.admin.models import LetterTopic
from proxy.admin.problem import Problem
from proxy.admin.replay_jobs import WantedReplay
from proxy.clock import wall_clock_ms
from proxy.config.settings import Settings
from proxy.dead_letters.letter import (
    Letter,
    LetterPage,
    LetterPages,
    LetterSummary,
    Origin,
    Place,
    summary_of,
)
from proxy.dead_letters.replay import OnDecision, Replay, preview
from proxy.dead_letters.replay_plan import Mark, Selection
from proxy.dead_letters.topics import GROUP, DeadLettersMissing, DeadLetterTopics, NoSuchLetter
from proxy.errors import ProxyError
from proxy.kafka.access import Connection, TopicUnknown, client_config, explain_failure, is_refusal
from proxy.kafka.log_ranges import answered_offset
from proxy.kafka.reader import READER_CONFIG, TopicReader
from proxy.lineage.histories import NotAllRead
from proxy.lineage.story import Story
from proxy.lineage.topics import KafkaTopics
from proxy.lineage.tracer import NoSuchRecord, trace_record

PAGE_S: Final = 4.0
"""A page is returned after this time, even if it is not full. With a narrow filter, a full page
could take minutes."""
MARKS_S: Final = 4.0
PAUSE_PER_WORK: Final = 3
"""A reader pauses three times as long as it works, because the worker's loop needs the CPU."""
LONGEST_PAUSE_S: Final = 0.5
MOST_TOPICS: Final = 200
MOST_PARTITIONS: Final = 1_000
MOST_RECORDS: Final = 1_000_000
"""A trace reads at most this many records. At this limit it reports that it has not read all."""
ASK_TIMEOUT_S: Final = 8.0

Marks = Mapping[Place, Mark]
RIGHTS: Final = " docs/dead-letters.md#rights lists the needed rights."


class _Stopped(Exception):
    """Reading was stopped, or its time is up."""


class ReadingPace:
    """A function that readers call after a few hundred records. It pauses, and it raises _Stopped
    if the reading was stopped or is late."""

    def __init__(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        self.is_stopping, self._rested_s = is_stopping, time.thread_time()

    def __call__(self) -> None:
        worked_s = time.thread_time() - self._rested_s
        time.sleep(min(worked_s * PAUSE_PER_WORK, LONGEST_PAUSE_S))
        self._rested_s = time.thread_time()
        if self.is_stopping():
            raise _Stopped


class TopicReaders:
    """Reads changes, dead letters and traces from their topics, and replays dead letters."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def changes(self, limit: int) -> list[Change]:
        """Return the newest changes of all instances, the newest first."""
        names = self._settings.topics
        config = client_config(self._settings, group_id=GROUP, **READER_CONFIG)
        reader = TopicReader(partial(Consumer, config), names.changes, [CHANGES_PARTITION])
        with _refusing(self._settings):
            try:
                Connection(self._settings).describe_topic(names.changes, "Read")
            except TopicUnknown:
                if names.create:
                    return []
                raise
            span = reader.spans()[CHANGES_PARTITION]
            last = range(max(span.start, span.stop - limit), span.stop)
            found = [read_change(one.value()) for one in reader.records(CHANGES_PARTITION, last)]
        return [change for change in reversed(found) if change is not None]

    def topics(self) -> list[LetterTopic]:
        """Return the dead-letter topics of the proxy and of groups, at most MOST_TOPICS."""
        names = self._settings.topics
        with _refusing(self._settings, RIGHTS):
            connection = Connection(self._settings)
            known = connection.list_topics(timeout=ASK_TIMEOUT_S).topics
            groups = sorted(
                topic
                for topic in known
                if topic.startswith(names.dlq_prefix)
                and topic not in {names.dlq_prefix, names.dead_letters}
                and not topic.endswith(names.replay_marks_of(""))
            )
            topics = [one for one in (names.dead_letters, *groups) if one in known][:MOST_TOPICS]
            sizes = _sizes(connection, {topic: list(known[topic].partitions) for topic in topics})
        group_of = {topic: topic.removeprefix(names.dlq_prefix) for topic in groups}
        return [
            LetterTopic(topic=topic, group=group_of.get(topic), offsets=size)
            for topic, size in sizes.items()
        ]

    def page(
        self, group: str | None, selection: Selection, ends: dict[int, int], limit: int
    ) -> tuple[LetterPage, Marks | None]:
        """Return a page, and the marks of its replayed letters. The marks are None if there was no
        time to read them."""
        with _refusing(self._settings, RIGHTS):
            pace = ReadingPace()
            topics = DeadLetterTopics(self._settings, group, pace)
            spans = topics.spans(selection)
            if len(spans) > MOST_PARTITIONS:
                detail = f"{topics.name} has more than {MOST_PARTITIONS} partitions."
                raise Problem(
                    409, "too-many-partitions", f"{detail} Use the command `dead-letters list`."
                )
            for partition, span in spans.items():  # `ends` lacks new partitions
                end = min(span.stop, ends.get(partition, span.stop))
                spans[partition] = range(span.start, max(span.start, end))
            letters = partial(topics.letters, selection, lambda _: None)
            page = LetterPages(letters, spans, time.monotonic).read(limit, PAGE_S)
            return page, _marks(topics, page.letters, pace)

    def letter(self, group: str | None, place: Place) -> tuple[Letter, Mark | None, bytes | None]:
        """Return a letter and its mark. If the letter lacks its value, also return the value that
        the ingress has."""
        with _refusing(self._settings, RIGHTS):
            pace = ReadingPace()
            topics = DeadLetterTopics(self._settings, group, pace)
            letter = topics.letter(place)
            original = topics.original(letter) if letter.lacks_value else None
            mark = (_marks(topics, [summary_of(letter)], pace) or {}).get(letter.place)
            return letter, mark, None if original is None else original[1]

    def replay(
        self,
        wanted: WantedReplay,
        on_decision: OnDecision,
        on_missing: Callable[[Place], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        selection = wanted.selection
        with _refusing(self._settings, RIGHTS), suppress(_Stopped):
            topics = DeadLetterTopics(self._settings, wanted.group, ReadingPace(is_stopping))
            if wanted.places is None:
                letters = _every(topics, selection)
            else:
                letters = filter(selection.takes, topics.at(wanted.places, on_missing))
            if wanted.is_dry:
                preview(topics, letters, wanted.options, on_decision)
            else:
                Replay(topics, wanted.options).run(letters, on_decision, is_stopping)

    def trace(self, named: Origin, timeout_s: float, retries_within_ms: int) -> Story:
        """Trace an ingress record, a delivery, or a dead letter."""
        settings, pace = self._settings, ReadingPace()
        with _refusing(settings):
            topics = KafkaTopics(
                settings, timeout_s, MOST_RECORDS, after_poll=pace, skips_refused=True
            )
            return trace_record(topics, settings, named, retries_within_ms, wall_clock_ms())


def _every(topics: DeadLetterTopics, selection: Selection) -> Iterator[Letter]:
    """Yield all letters of the selection. The ends of the partitions are read at the first letter.
    So a replayed letter that fails again, and is written at a later offset, is left out."""
    yield from topics.every(selection, topics.spans(selection), lambda _: None)


def _marks(
    topics: DeadLetterTopics, shown: Sequence[LetterSummary], pace: ReadingPace
) -> Marks | None:
    """Return the marks of the letters, or None if reading them takes longer than MARKS_S. After
    this call, `pace` ends all further readings."""
    until_s = time.monotonic() + MARKS_S
    pace.is_stopping = lambda: time.monotonic() > until_s
    try:
        return topics.marks(shown)
    except _Stopped:
        return None


def _sizes(connection: Connection, topics: Mapping[str, Sequence[int]]) -> dict[str, int | None]:
    """Return the number of offsets in each topic, or None if the broker answers with an error."""
    sizes: dict[str, int | None] = dict.fromkeys(topics, 0)
    places = [TopicPartition(topic, n) for topic, numbers in topics.items() for n in numbers]
    if not places:
        return sizes
    firsts, ends = (
        connection.list_offsets(dict.fromkeys(places, spec), request_timeout=ASK_TIMEOUT_S)
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
    )
    for place in places:
        size = sizes[place.topic]
        try:
            span = answered_offset(ends[place]) - answered_offset(firsts[place])
            sizes[place.topic] = None if size is None else size + span
        except KafkaException:
            sizes[place.topic] = None
    return sizes


@contextmanager
def _refusing(settings: Settings, rights: str = "") -> Iterator[None]:
    try:
        yield
    except DeadLettersMissing as missing:
        detail = f"{missing.found} No letter has been written there yet."
        raise Problem(404, "no-such-topic", detail) from None
    except NoSuchLetter as missing:
        raise Problem(404, "not-found", missing.found) from None
    except (TopicUnknown, NoSuchRecord) as missing:
        raise Problem(404, "not-found", str(missing)) from None
    except NotAllRead as late:
        raise Problem(503, "no-answer", f"{late} Ask again with a longer `wait`.") from None
    except ProxyError as error:
        raise Problem(503, "broker", str(error)) from None
    except KafkaException as error:
        said = str(explain_failure(error, settings))
        detail = said + rights if is_refusal(error.args[0]) else said
        raise Problem(503, "broker", detail) from None
