"""Ingress records of a trace, each read once; and the way back to the first of a chain."""

from typing import NamedTuple

from proxy.dead_letters.letters.letter import Origin, read_origin
from proxy.lineage.chain.asked import Asked, read_asked
from proxy.lineage.chain.matching import came_from
from proxy.lineage.chain.traced_record import Topics, TracedRecord
from proxy.records.headers import FIRST_ORIGIN, HOP_FROM, ORIGIN
from proxy.requests.request_reader import RequestReader

MOST_STEPS_BACK = 10_000


class Ingested(NamedTuple):
    """An ingress record, without its value, and what it asks for."""

    record: TracedRecord
    asked: Asked


class Ancestry(NamedTuple):
    """The first of a chain, and which record each of those that were rewritten became.

    unknown: what of the way back cannot be told.
    """

    root: Origin
    successors: dict[Origin, Origin]
    unknown: list[str]


class IngressRecords:
    """Reads them from `topics`; what they ask for is said by `reader`."""

    def __init__(self, topics: Topics, ingress: str, reader: RequestReader) -> None:
        self._topics, self._ingress, self._reader = topics, ingress, reader
        self._read: dict[Origin, Ingested | None] = {}

    def read(self, origin: Origin) -> Ingested | None:
        """None where it is not there (any more)."""
        if origin not in self._read:
            record = self._topics.at(origin)
            self._read[origin] = None
            if record is not None:
                asked = read_asked(record, self._reader)
                self._read[origin] = Ingested(record.without_value(), asked)
        return self._read[origin]

    def ancestry(self, origin: Origin) -> Ancestry:
        """The way back from a record to the first of its chain, one record after the other."""
        found = Ancestry(origin, {}, [])
        seen = {origin}
        while (before := self._before(found)) is not None and before not in seen:
            seen.add(before)
            found = found._replace(root=before)
            if len(seen) > MOST_STEPS_BACK:
                found.unknown.append(f"What was before {before}: it is too long a way back.")
                break
        return found

    def _before(self, found: Ancestry) -> Origin | None:
        """The ingress record before the first that is known by now."""
        here = self.read(found.root)
        before = None if here is None else came_from(here.record)
        if here is None or before is None:
            return None
        if here.record.header(HOP_FROM) is not None:
            return self._rewritten(here.record, before, found)
        if before.topic == self._ingress:
            return before
        return self._delivered(before, found)

    def _rewritten(self, record: TracedRecord, before: Origin, found: Ancestry) -> Origin:
        """A half message goes on from its commit, and is named by the successor as the first."""
        first = read_origin(record.text(FIRST_ORIGIN) or "")
        ingested = self.read(before)
        if ingested is not None and ingested.asked.kind == "commit" and first is not None:
            before = first
        found.successors[before] = record.place
        if ingested is None and first not in {None, before}:
            found.unknown.append(f"What lies between {first}, the first origin, and {before}.")
        return before

    def _delivered(self, place: Origin, found: Ancestry) -> Origin | None:
        """The ingress record that was delivered to a place where a consumer failed at it."""
        record = self._topics.at(place)
        if record is None:
            found.unknown.append(f"What was before the retry: {place} is not there any more.")
            return None
        return read_origin(record.text(ORIGIN) or "")
