"""Traces records for the API: a bound on time and on records, and most of the interpreter left to
the worker's loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaException

from proxy.admin.dead_letters.kafka_letters import ReadingPace
from proxy.admin.exchange import Problem
from proxy.clock import wall_clock_ms
from proxy.config.settings import Settings
from proxy.dead_letters.letter import Origin
from proxy.errors import ProxyError
from proxy.kafka.access import TopicUnknown, explain
from proxy.lineage.links import NotAllRead
from proxy.lineage.topics import Bounds, KafkaTopics
from proxy.lineage.tracer import NoSuchRecord, RecordTrace, trace_record

MOST_RECORDS: Final = 1_000_000
"""A trace that looks at so many says what it has not read."""


class KafkaTraces:
    """Calls may come from any thread. Each has clients of its own. Raises Problem."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def trace(self, named: Origin, timeout_s: float, retries_within_ms: int) -> RecordTrace:
        """What became of the record at `named`, an ingress record or what was made of one."""
        settings, bounds = self._settings, Bounds(timeout_s, MOST_RECORDS)
        with _refusing(settings):
            pace = ReadingPace()
            topics = KafkaTopics(settings, bounds, after_poll=pace, skips_refused=True)
            return trace_record(topics, settings, named, retries_within_ms, wall_clock_ms())


@contextmanager
def _refusing(settings: Settings) -> Iterator[None]:
    """Turns errors into refusals."""
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
