"""Traces one record, for the command and the admin port alike."""

from dataclasses import replace
from typing import Any, NamedTuple

from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import Settings
from proxy.dead_letters.letters.letter import Origin
from proxy.lineage.chain.story import Story, Storyteller
from proxy.lineage.chain.traced_record import Topics
from proxy.lineage.topics import find_beginning, refuse_untold
from proxy.lineage.tracer import Tracer
from proxy.protocol.request_reader import request_reader


class RecordTrace(NamedTuple):
    """The ingress record that was meant, and its story."""

    origin: Origin
    story: Story

    def data(self) -> dict[str, Any]:
        """For programs; times in epoch ms, None where they are not known."""
        return self.story.data(self.origin)


def trace_record(
    topics: Topics, settings: Settings, named: Origin, retries_within_ms: int, now_ms: int
) -> RecordTrace:
    """What became of the record at `named`, of any topic that the proxy writes or reads.

    retries_within_ms: so long after a delivery a consumer's failure is looked for. Raises
    NoSuchRecord, and what `topics` raises but for NotAllRead.
    """
    names, policy = settings.topics, replace(policy_of(settings, None), roll_after_ms=None)
    origin = find_beginning(topics, named, names.ingress, settings.bootstrap_servers)
    there = topics.offsets(origin.topic, origin.partition)
    tracer = Tracer(topics, names, request_reader(policy), retries_within_ms)
    found = tracer.trace(origin)
    refuse_untold(found, there, names.outcomes)
    return RecordTrace(origin, Storyteller(names, now_ms).story(found))
