"""What `check` says of topics and of how long they keep records."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from proxy.cli.check.findings import Finding, TopicConfig, advice, number_in, ok, stop, warn
from proxy.cli.terminal import shown_duration
from proxy.config.ingress_retention import (
    ROLL_AT,
    is_too_short,
    longest_undecided_ms,
    needed_ms,
    roll_after_ms,
    takes_bombs,
    unfit,
)
from proxy.config.settings import Settings
from proxy.kafka.access import Right, grant
from proxy.kafka.client_settings import session_timeout_ms, transaction_timeout_ms
from proxy.kafka.topics import MIN_INSYNC, Replication

# Whether the ingress keeps a record until it has ended, or has been rewritten.

DAY_MS: Final = 86_400_000
SEGMENTS: Final = 7
"""So many closed segments to a topic's retention: what is deleted goes in small enough steps."""


def retention_findings(settings: Settings, ingress: TopicConfig) -> Iterator[Finding]:
    """Findings about how long, and how much, the ingress topic keeps."""
    subject = f"topic {ingress.name}"
    kept_ms = number_in(ingress.config, "retention.ms")
    if kept_ms is None:
        yield from _unknown(subject, ingress.name, settings)
    elif kept_ms < 0:
        yield ok(subject, "keeps records for ever (retention.ms=-1)")
    else:
        yield _time(subject, kept_ms, settings)
        yield from _half_messages(subject, kept_ms, settings)
        yield from _segments(subject, kept_ms, number_in(ingress.config, "segment.ms"))
    yield from _size(subject, number_in(ingress.config, "retention.bytes"))


def _unknown(subject: str, topic: str, settings: Settings) -> Iterator[Finding]:
    right = Right("DescribeConfigs", "topic", topic)
    if settings.roll_after_ms is None:
        yield warn(
            subject,
            "how long it keeps records may not be read: none is rewritten before it is deleted",
            f"Set `roll_after` to half its retention.ms. Or: {grant([right], settings)}",
        )


def _time(subject: str, kept_ms: int, settings: Settings) -> Finding:
    """The time left to rewrite a record in is the time that the proxy may be down."""
    after_ms = roll_after_ms(settings, kept_ms) or kept_ms
    least_ms = needed_ms(settings, kept_ms)
    spare_ms = kept_ms - least_ms
    kept = f"keeps records {shown_duration(kept_ms)} (retention.ms={kept_ms})"
    waits = (
        f"what waits longer than {shown_duration(after_ms)} is rewritten"
        if after_ms < settings.max_delay_ms
        else f"max_delay is {shown_duration(settings.max_delay_ms)}"
    )
    if is_too_short(settings, kept_ms):
        return stop(
            subject,
            f"{kept}; {waits}: it is deleted before",
            f"Raise retention.ms to {least_ms * ROLL_AT} (-1 keeps all), or set "
            "`roll_after: auto`.",
        )
    if spare_ms < DAY_MS:
        return warn(
            subject,
            f"{kept}; {waits}, so the proxy may be down for {shown_duration(spare_ms)}",
            "After that it finds records deleted that it still needs, and refuses to start: raise "
            f"retention.ms to {least_ms + DAY_MS} at least, or lower `roll_after`.",
        )
    return ok(subject, f"{kept}; {waits}, so the proxy may be down for {shown_duration(spare_ms)}")


def _half_messages(subject: str, kept_ms: int, settings: Settings) -> Iterator[Finding]:
    undecided_ms = longest_undecided_ms(settings)
    if kept_ms < 2 * undecided_ms:
        yield warn(
            subject,
            f"keeps records {shown_duration(kept_ms)}; a half message may stay undecided for "
            f"{shown_duration(undecided_ms)}",
            "Undecided half messages are not rewritten: raise retention.ms to "
            f"{2 * undecided_ms} at least, or ask less often (`transactions`).",
        )


def _segments(subject: str, kept_ms: int, closed_ms: int | None) -> Iterator[Finding]:
    if closed_ms is not None and closed_ms > kept_ms:
        yield advice(
            subject,
            f"closes a segment after {shown_duration(closed_ms)} (segment.ms={closed_ms}): records "
            f"take room on disk for up to {shown_duration(kept_ms + closed_ms)}",
            f"Set segment.ms={max(kept_ms // SEGMENTS, 1)}.",
        )


def _size(subject: str, kept_bytes: int | None) -> Iterator[Finding]:
    if kept_bytes is not None and kept_bytes >= 0:
        yield warn(
            subject,
            f"keeps {kept_bytes} bytes a partition, however long records wait: under load they are "
            "deleted before they are rewritten",
            "Set retention.bytes=-1: let time alone decide.",
        )


# What the configuration of the proxy's topics and of the broker means for the proxy.

STAMPS_BYTES = 1024
WEEK_MINUTES = 7 * 24 * 60
METADATA_BYTES = 1024
HOP_BYTES = 512
"""So much longer may the headers of a rewritten record be."""


def topic_findings(settings: Settings, topics: Mapping[str, TopicConfig]) -> Iterator[Finding]:
    """Findings about the topics that exist, by their role in the settings' `topics`."""
    if ingress := topics.get("ingress"):
        yield from (stop(f"topic {ingress.name}", *why) for why in unfit(settings, ingress.config))
        if problem := takes_bombs(ingress.config):
            yield warn(f"topic {ingress.name}", *problem)
        yield from _timestamps(ingress, settings)
        yield from retention_findings(settings, ingress)
        yield from _largest(ingress, settings)
        yield from _spread(ingress, settings.workers or 1)
        yield from _added(ingress, settings)
        if dead_letters := topics.get("dead_letters"):
            yield from _sizes(ingress, dead_letters)
    own = topics.get("settings")
    if own and own.config and "compact" not in own.config.get("cleanup.policy", ""):
        yield warn(
            f"topic {own.name}",
            f"cleanup.policy is {own.config.get('cleanup.policy')}",
            "Set cleanup.policy=compact: it must never forget a policy still in use.",
        )


def broker_config_findings(settings: Settings, config: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about the broker's own configuration; none where it may not be read."""
    yield from _group_limits(settings, config)
    longest_ms = number_in(config, "transaction.max.timeout.ms")
    timeout_ms = transaction_timeout_ms(settings)
    if longest_ms is not None and longest_ms < timeout_ms:
        yield stop(
            "broker",
            f"transaction.max.timeout.ms is {longest_ms}, the proxy asks for {timeout_ms}",
            f"Raise it, or set `kafka: transaction.timeout.ms: {longest_ms}`.",
        )
    metadata_bytes = number_in(config, "offset.metadata.max.bytes")
    if metadata_bytes is not None and metadata_bytes < METADATA_BYTES:
        yield stop(
            "broker",
            f"offset.metadata.max.bytes is {metadata_bytes}",
            f"Raise it to {METADATA_BYTES} at least: the watermark is kept there.",
        )
    kept_minutes = number_in(config, "offsets.retention.minutes")
    if kept_minutes is not None and kept_minutes < WEEK_MINUTES:
        yield warn(
            "broker",
            f"forgets offsets {shown_duration(kept_minutes * 60_000)} after the group has gone",
            "The offsets are the proxy's memory: raise offsets.retention.minutes above the longest "
            "time the proxy may be stopped.",
        )


def _group_limits(settings: Settings, config: Mapping[str, str]) -> Iterator[Finding]:
    timeout_ms = session_timeout_ms(settings)
    for name, factor in (("group.min.session.timeout.ms", 1), ("group.max.session.timeout.ms", -1)):
        limit_ms = number_in(config, name)
        if limit_ms is not None and (limit_ms - timeout_ms) * factor > 0:
            yield stop(
                "broker",
                f"{name} is {limit_ms}, the proxy asks for {timeout_ms}",
                f"Set `kafka: session.timeout.ms: {limit_ms}`, or change {name}.",
            )
    most = number_in(config, "group.max.size")
    if most is not None and most < (settings.workers or 1):
        yield stop(
            "broker",
            f"group.max.size is {most}, the proxy has {settings.workers or 1} workers",
            "Run fewer workers, or raise group.max.size.",
        )
    protocols = config.get("group.coordinator.rebalance.protocols", "")
    if protocols and "classic" not in protocols:
        yield stop(
            "broker",
            f"group.coordinator.rebalance.protocols is {protocols}",
            "Add classic: the proxy's consumer group uses that protocol.",
        )


def coordinator_findings(config: Mapping[str, str], brokers: int) -> Iterator[Finding]:
    """Findings about Kafka's own topics, without which no group and no transaction works."""
    for kind in ("offsets.topic", "transaction.state.log"):
        name = f"{kind}.replication.factor"
        factor = number_in(config, name)
        if factor is not None and factor > brokers:
            yield warn(
                "broker",
                f"{name} is {factor}, brokers: {brokers}",
                "If no broker is away, Kafka cannot create that topic and `run` waits for it: add "
                f"brokers, or set {name}={brokers} and restart the broker.",
            )


def replication_findings(topics: Iterable[TopicConfig], wanted: Replication) -> Iterator[Finding]:
    """Findings about the proxy's own topics: the loss of one disk must lose nothing."""
    for topic in topics:
        subject = f"topic {topic.name}"
        if topic.replicas is not None and topic.replicas < wanted.factor:
            yield warn(
                subject,
                f"replicas: {topic.replicas}, where {wanted.factor} are wanted",
                "Add replicas with kafka-reassign-partitions.sh, or say in `topics: "
                "replication_factor` that so few will do.",
            )
        confirming = number_in(topic.config, MIN_INSYNC)
        if confirming is not None and topic.replicas is not None and confirming > topic.replicas:
            yield stop(
                subject,
                f"{MIN_INSYNC} is {confirming}, replicas: {topic.replicas}. No write is accepted",
                f"Add replicas, or set {MIN_INSYNC}={topic.replicas}.",
            )
        if confirming is not None and confirming < min(wanted.min_insync, topic.replicas or 0):
            yield warn(
                subject,
                f"{MIN_INSYNC} is {confirming}, where {wanted.min_insync} are wanted: what so few "
                "have confirmed can be lost with them",
                f"Set {MIN_INSYNC}={wanted.min_insync}.",
            )


def _timestamps(ingress: TopicConfig, settings: Settings) -> Iterator[Finding]:
    kind = ingress.config.get("message.timestamp.type")
    subject = f"topic {ingress.name}"
    if kind == "LogAppendTime":
        yield ok(subject, f"message.timestamp.type is {kind}")
    elif kind is not None and settings.topics.allow_create_time:
        yield advice(
            subject,
            f"message.timestamp.type is {kind}: delays count from the producer's clock",
            "Set message.timestamp.type=LogAppendTime, so that one clock decides.",
        )


def _spread(ingress: TopicConfig, workers: int) -> Iterator[Finding]:
    if workers > ingress.partitions:
        yield advice(
            f"topic {ingress.name}",
            f"has {ingress.partitions} partitions for {workers} workers",
            "Workers beyond the number of partitions stay idle.",
        )


def _added(ingress: TopicConfig, settings: Settings) -> Iterator[Finding]:
    named = settings.topics.partitions
    if settings.topics.create and ingress.partitions > named:
        yield advice(
            f"topic {ingress.name}",
            f"has {ingress.partitions} partitions, `topics: partitions` says {named}",
            "If partitions were added while records waited: keys have moved to other partitions, "
            "and ids count within one partition. A cancel or a replacement by id misses a record "
            "that was written before. Recall such a record by its origin (`timer-recall`). Then "
            f"set `topics: partitions: {ingress.partitions}`.",
        )


def _largest(ingress: TopicConfig, settings: Settings) -> Iterator[Finding]:
    taken = number_in(ingress.config, "max.message.bytes")
    if taken is None:
        return
    subject = f"topic {ingress.name}"
    yield ok(subject, f"takes {taken} bytes a record; one that is rewritten grows by {HOP_BYTES}")
    sent = number_in(settings.kafka, "message.max.bytes")
    if sent is not None and sent < taken + STAMPS_BYTES:
        yield warn(
            subject,
            f"takes {taken} bytes a record, the proxy's own client sends {sent}",
            "Take `message.max.bytes` out of `kafka`, or set it to "
            f"{taken + STAMPS_BYTES} at least, more where records are compressed: what is larger "
            "ends as a dead letter (`too-large`), without its value if that does not fit either.",
        )


def _sizes(ingress: TopicConfig, dead_letters: TopicConfig) -> Iterator[Finding]:
    taken = number_in(ingress.config, "max.message.bytes")
    kept = number_in(dead_letters.config, "max.message.bytes")
    if taken is not None and kept is not None and kept < taken + STAMPS_BYTES:
        yield warn(
            f"topic {dead_letters.name}",
            f"takes {kept} bytes a record, {ingress.name} takes {taken}",
            f"Set max.message.bytes={taken + STAMPS_BYTES} at least: a dead letter has more "
            "headers than its record, and one too large goes without its value.",
        )
