"""What retention has deleted before a batch could read it: that is unverifiable, and the audit goes
on with what is left.

A horizon is kept with the state, and asks for what the topics held when it was taken; the audit may
have been stopped since.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from spark_jobs.circumstances.unseen import Unseen, unseen_of
from spark_jobs.continuous.horizon import Horizon
from spark_jobs.continuous.state import Tally
from spark_jobs.kafka.broker import Broker, Place
from spark_jobs.kafka.committed import first_timestamps
from spark_jobs.kafka.positions import EndRange, Range
from spark_jobs.kafka.snapshot import now_ms


class Deleted(NamedTuple):
    """Ranges that nobody has read: of the ingress, and of topics where records end."""

    requests: list[Range]
    ends: list[Range]

    def sentences(self) -> Iterator[str]:
        """One for each range."""
        for what, ranges in (("was asked for", self.requests), ("ended", self.ends)):
            for topic, partition, start, end in ranges:
                yield (
                    f"Retention has deleted {topic}, partition {partition}, from offset {start} to"
                    f" {end - 1} before that was read: what {what} there is unverifiable."
                )


def deleted(ingress: str, tally: Tally, log_starts: Mapping[Place, int]) -> Deleted:
    """What is gone of that which the batch after this tally is to read."""
    judged_to = {(ingress, number): span.closed_to for number, span in tally.ingress.items()}
    judged_to |= tally.ends
    asked = [
        Range(ingress, one.partition, one.log_start, log_starts[ingress, one.partition])
        for one in tally.horizon.positions
    ]

    def gone(ranges: Iterable[Range]) -> Iterator[Range]:
        for one in ranges:
            place = (one.topic, one.partition)
            read_to = tally.gathered.read_to.get(place, 0)
            start = max(judged_to.get(place, one.start), read_to)
            if start < (end := min(one.end, log_starts[place])):
                yield one._replace(start=start, end=end)

    return Deleted([*gone(asked)], [*gone(tally.horizon.ends)])


def without(horizon: Horizon, gone: Deleted, first_ms: Mapping[Place, int], at_ms: int) -> Horizon:
    """The horizon, asking for what is left. first_ms: when at the latest what is gone of a
    partition had been written, where that is known."""
    lost = [EndRange(one, True, first_ms.get((one.topic, one.partition))) for one in gone.ends]
    unseen = dict(horizon.unseen)
    for place, one in unseen_of(lost, at_ms).items():
        unseen[place] = _joined(unseen.get(place), one, at_ms)
    starts = {(one.topic, one.partition): one.end for one in gone.ends}
    log_starts = {one.partition: one.end for one in gone.requests}
    return replace(
        horizon,
        positions=tuple(
            one._replace(log_start=log_starts.get(one.partition, one.log_start))
            for one in horizon.positions
        ),
        ends=tuple(
            one._replace(start=starts.get((one.topic, one.partition), one.start))
            for one in horizon.ends
        ),
        unseen=unseen,
    )


def told_by(broker: Broker, ingress: str, tally: Tally) -> tuple[Tally, Deleted]:
    """The tally by which the batch after it can be judged, and what is gone.

    Raises the errors of `spark_jobs.runtime.errors`."""
    places = [(ingress, one.partition) for one in tally.horizon.positions]
    places += [(one.topic, one.partition) for one in tally.horizon.ends]
    log_starts = broker.log_starts(places)
    gone = deleted(ingress, tally, log_starts)
    lost = {place: log_starts[place] for place in ((o.topic, o.partition) for o in gone.ends)}
    first_ms = first_timestamps(broker, lost)
    return replace(tally, horizon=without(tally.horizon, gone, first_ms, now_ms())), gone


def _joined(before: Unseen | None, now: Unseen, at_ms: int) -> Unseen:
    """What lay behind an open transaction may be among what is gone."""
    if before is None:
        return now
    return now._replace(until_ms=at_ms) if before.is_open else max(before, now)
