"""Reading of dead letters and traces from topics, and replays. All calls raise Problem."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

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
from proxy.dead_letters.topics import (
    DeadLettersMissing,
    DeadLetterTopics,
    NoSuchLetter,
)
from proxy.errors import ProxyError
from proxy.kafka.access import Connection, TopicUnknown, explain, is_refusal
from proxy.kafka.log_ranges import answered_offset
from proxy.lineage.links import NotAllRead
from proxy.lineage.story import Story
from proxy.lineage.topics import KafkaTopics
from proxy.lineage.tracer import NoSuchRecord, trace_record

PAGE_S: Final = 4.0
"""A page is returned after this time, full or not: a narrow filter reads many records."""
MARKS_S: Final = 4.0
PAUSE_PER_WORK: Final = 3
"""A reader rests three times as long as it works: the worker's loop needs the interpreter."""
LONGEST_PAUSE_S: Final = 0.5
MOST_TOPICS: Final = 200
MOST_PARTITIONS: Final = 1_000
MOST_RECORDS: Final = 1_000_000
"""Most records that a trace reads. It reports the rest as unread."""
ASK_TIMEOUT_S: Final = 8.0

Marks = Mapping[Place, Mark]


class ListedPage(NamedTuple):
    """A page, and marks of replayed letters, None if there was no time."""

    page: LetterPage
    marks: Marks | None


class SeenLetter(NamedTuple):
    """A letter. `original` is its value in the ingress, if the letter has none."""

    letter: Letter
    mark: Mark | None
    original: bytes | None


class _TimeIsUp(Exception):
    """There was no time to read all marks."""


class _Stopped(Exception):
    """A replay or dry run was stopped while reading."""


class ReadingPace:
    """A pause after a few hundred records. It also ends a stopped or late reading."""

    def __init__(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        self.until_s: float | None = None
        self._is_stopping, self._rested_s = is_stopping, time.thread_time()

    def __call__(self) -> None:
        worked_s = time.thread_time() - self._rested_s
        time.sleep(min(worked_s * PAUSE_PER_WORK, LONGEST_PAUSE_S))
        self._rested_s = time.thread_time()
        if self._is_stopping():
            raise _Stopped
        if self.until_s is not None and time.monotonic() > self.until_s:
            raise _TimeIsUp


class KafkaLetters:
    """Dead letters in their topics."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def topics(self) -> list[LetterTopic]:
        """Return the dead-letter topics of the proxy and of groups, at most MOST_TOPICS."""
        names = self._settings.topics
        with self._refusing():
            connection = Connection(self._settings)
            known = connection.list_topics(timeout=ASK_TIMEOUT_S).topics
            groups = sorted(
                topic
                for topic in known
                if topic.startswith(names.dlq_prefix)
                and topic != names.dlq_prefix
                and not topic.endswith(names.replay_marks_of(""))
            )
            topics = [one for one in (names.dead_letters, *groups) if one in known][:MOST_TOPICS]
            sizes = _sizes(connection, {topic: list(known[topic].partitions) for topic in topics})
        prefix = names.dlq_prefix
        return [
            LetterTopic(
                topic=topic,
                group=None if topic == names.dead_letters else topic.removeprefix(prefix),
                offsets=sizes[topic],
            )
            for topic in topics
        ]

    def page(
        self, group: str | None, selection: Selection, ends: dict[int, int], limit: int
    ) -> ListedPage:
        with self._refusing():
            pace = ReadingPace()
            topics = DeadLetterTopics(self._settings, group, pace)
            spans = topics.spans(selection)
            if len(spans) > MOST_PARTITIONS:
                detail = f"{topics.name} has more than {MOST_PARTITIONS} partitions."
                raise Problem(409, "too-many-partitions", f"{detail} `dead-letters list` shows it.")
            below = {p: _below(span, ends.get(p)) for p, span in spans.items()}
            letters = partial(topics.letters, selection, lambda _: None)
            page = LetterPages(letters, below, time.monotonic).read(limit, PAGE_S)
            return ListedPage(page, _marks(topics, page.letters, pace))

    def letter(self, group: str | None, place: Place) -> SeenLetter:
        with self._refusing():
            pace = ReadingPace()
            topics = DeadLetterTopics(self._settings, group, pace)
            letter = topics.letter(place)
            marks = _marks(topics, [summary_of(letter)], pace) or {}
            original = topics.original(letter) if letter.lacks_value else None
            return SeenLetter(letter, marks.get(letter.place), original and original[1])

    def replay(
        self,
        wanted: WantedReplay,
        on_decision: OnDecision,
        on_missing: Callable[[Place], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        with self._refusing():
            topics = DeadLetterTopics(self._settings, wanted.group, ReadingPace(is_stopping))
            try:
                letters = _wanted(topics, wanted, on_missing)
                if wanted.is_dry:
                    preview(topics, letters, wanted.options, on_decision)
                else:
                    Replay(topics, wanted.options).run(letters, on_decision, is_stopping)
            except _Stopped:
                return

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except DeadLettersMissing as missing:
            detail = f"{missing.found} Nothing has been written there yet."
            raise Problem(404, "no-such-topic", detail) from None
        except NoSuchLetter as missing:
            raise Problem(404, "not-found", missing.found) from None
        except ProxyError as error:
            raise Problem(503, "broker", str(error)) from None
        except KafkaException as error:
            said = str(explain(error.args[0], self._settings))
            rights = " docs/dead-letters.md#rights has the rights that this needs."
            detail = said + rights if is_refusal(error.args[0]) else said
            raise Problem(503, "broker", detail) from None


def _wanted(
    topics: DeadLetterTopics, wanted: WantedReplay, on_missing: Callable[[Place], None]
) -> Iterator[Letter]:
    """Yield the letters. The end of the topic is read first, so letters that return are skipped."""
    selection = wanted.selection
    if wanted.places is None:
        yield from topics.every(selection, topics.spans(selection), lambda _: None)
        return
    for letter in topics.at(wanted.places, on_missing):
        if selection.takes(letter):
            yield letter


def _marks(
    topics: DeadLetterTopics, shown: Sequence[LetterSummary], pace: ReadingPace
) -> Marks | None:
    pace.until_s = time.monotonic() + MARKS_S
    try:
        return topics.marks(shown)
    except _TimeIsUp:
        return None
    finally:
        pace.until_s = None


def _below(span: range, end: int | None) -> range:
    """Cut the span at `end`. A partition added since the list began is not cut."""
    return span if end is None else range(span.start, max(span.start, min(span.stop, end)))


def _sizes(connection: Connection, partitions: dict[str, list[int]]) -> dict[str, int | None]:
    places = [TopicPartition(topic, n) for topic, numbers in partitions.items() for n in numbers]
    firsts = _offsets(connection, places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = _offsets(connection, places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    spans: dict[str, list[int | None]] = {topic: [] for topic in partitions}
    for place, first, end in zip(places, firsts, ends, strict=True):
        spans[place.topic].append(None if first is None or end is None else end - first)
    return {topic: _sum(all_of) for topic, all_of in spans.items()}


def _sum(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _offsets(
    connection: Connection, places: Sequence[TopicPartition], spec: OffsetSpec
) -> list[int | None]:
    if not places:
        return []
    asked = connection.list_offsets(dict.fromkeys(places, spec), request_timeout=ASK_TIMEOUT_S)
    offsets: list[int | None] = []
    for place in places:
        try:
            offsets.append(answered_offset(asked[place]))
        except KafkaException:
            offsets.append(None)
    return offsets


class KafkaTraces:
    """Traces of records, read from the topics."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def trace(self, named: Origin, timeout_s: float, retries_within_ms: int) -> Story:
        """Trace an ingress record, a delivery, or a dead letter."""
        settings = self._settings
        with _refusing_traces(settings):
            pace = ReadingPace()
            topics = KafkaTopics(
                settings, timeout_s, MOST_RECORDS, after_poll=pace, skips_refused=True
            )
            return trace_record(topics, settings, named, retries_within_ms, wall_clock_ms())


@contextmanager
def _refusing_traces(settings: Settings) -> Iterator[None]:
    try:
        yield
    except (TopicUnknown, NoSuchRecord) as missing:
        raise Problem(404, "not-found", str(missing)) from None
    except NotAllRead as late:
        raise Problem(503, "no-answer", f"{late} Ask again with a longer `wait`.") from None
    except ProxyError as error:
        raise Problem(503, "broker", str(error)) from None
    except KafkaException as error:
        raise Problem(503, "broker", str(explain(error.args[0], settings))) from None
