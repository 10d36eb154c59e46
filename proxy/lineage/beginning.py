"""The ingress record that a person means, or why there is none."""

from proxy.dead_letters.letters.letter import Origin, read_origin
from proxy.errors import ProxyError
from proxy.kafka.access.connection import TopicUnknown
from proxy.lineage.chain.link import Trace
from proxy.lineage.chain.traced_record import Topics
from proxy.records.headers import ORIGIN


class NoSuchRecord(ProxyError):
    """No record lies at the place that a person named, or none that the proxy knows of."""


def find_beginning(topics: Topics, named: Origin, ingress: str, bootstrap: str) -> Origin:
    """The ingress record at `named`; of a delivery or a dead letter, the one that it was made of.

    An ingress record is not read here. It may be deleted, or in a batch that cannot be read; its
    outcome may still be there. Raises TopicUnknown, NoSuchRecord.
    """
    topic, partition, offset = named
    count = topics.partitions_of(topic)
    if not count:
        raise TopicUnknown(topic, bootstrap)
    if partition >= count:
        raise NoSuchRecord(f"{topic} has no partition {partition}: it has 0 to {count - 1}.")
    there = topics.offsets(topic, partition)
    if topic == ingress and offset < there.stop:
        return named
    record = topics.at(named)
    if record is None:
        raise NoSuchRecord(*_nothing_at(named, there))
    origin = read_origin(record.text(ORIGIN) or "")
    if origin is None or origin.topic != ingress:
        raise NoSuchRecord(
            f"{named} was not made of a record of {ingress}: its header {ORIGIN} "
            + ("is missing." if origin is None else f"is {origin}."),
            "Name the proxy's settings file with --config if its ingress topic has another name.",
        )
    return origin


def refuse_untold(trace: Trace, there: range, outcomes: str) -> None:
    """Raises NoSuchRecord where nothing at all is known of the record that was asked for."""
    if any(link.record or link.ended_ms is not None for link in trace.links) or not trace.is_whole:
        return
    asked = trace.asked
    if asked.offset in there:
        raise NoSuchRecord(*_nothing_at(asked, there))
    raise NoSuchRecord(
        f"{asked} cannot be read any more: partition {asked.partition} of {asked.topic} begins at "
        f"offset {there.start}, and no outcome in {outcomes} names it.",
        "It was delivered, or its outcome has been deleted as well. Trace the record that was "
        "delivered (its place in the target topic) if you have it.",
    )


def _nothing_at(named: Origin, there: range) -> tuple[str, str]:
    at = f"No record lies at {named}"
    if named.offset in there:
        why = "an aborted transaction had it, or Kafka's own records of transactions"
        return f"{at} that can be read: {why}.", "The next offset may be meant."
    if not there:
        return f"{at}: partition {named.partition} of {named.topic} is empty.", ""
    holds = f"holds offsets {there.start} to {there.stop - 1}"
    return (
        f"{at}: partition {named.partition} of {named.topic} {holds}.",
        "Below these, retention has deleted it; above, it is not written, or not committed yet.",
    )
