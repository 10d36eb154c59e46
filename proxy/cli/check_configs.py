"""Findings of `check` about the configuration of topics and broker."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import gt, lt
from pathlib import Path
from typing import Final, TypeAlias

from proxy.cli.terminal import shown_duration
from proxy.config.policy_from_settings import (
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


class Severity(StrEnum):
    """The severity of a finding.

    STOP: the proxy would not run. WARN: the proxy may lose a record or much time."""

    OK = "ok"
    ADVICE = "advice"
    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `check`. The remedy is empty if there is no fault."""

    severity: Severity
    subject: str
    found: str
    remedy: str = ""

    def as_row(self) -> tuple[str, str, str, str]:
        return (self.severity.value, self.subject, self.found, self.remedy)

    def as_json(self) -> dict[str, str]:
        names = ("verdict", "subject", "found", "remedy")
        return dict(zip(names, self.as_row(), strict=True))


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest folder above it that exists."""
    absolute = folder.absolute()
    return next(one for one in (absolute, *absolute.parents) if one.exists())


class Subject(str):
    """The subject of findings, such as a topic."""

    __slots__ = ()

    def ok(self, found: str) -> Finding:
        return Finding(Severity.OK, self, found)

    def advice(self, found: str, remedy: str) -> Finding:
        return Finding(Severity.ADVICE, self, found, remedy)

    def warn(self, found: str, remedy: str) -> Finding:
        return Finding(Severity.WARN, self, found, remedy)

    def stop(self, found: str, remedy: str) -> Finding:
        return Finding(Severity.STOP, self, found, remedy)

    def lacks(
        self, missing: Sequence[Right], settings: Settings, severity: Severity = Severity.STOP
    ) -> Finding:
        """Return the finding that the broker grants too few rights."""
        operations = ", ".join(right.operation for right in missing)
        found = f"the proxy's user lacks {operations}"
        return Finding(severity, self, found, grant(missing, settings))


def number_in(config: Mapping[str, str], key: str) -> int | None:
    """Return the value of a key as a number. Return None if it is unknown."""
    text = config.get(key, "")
    return int(text) if text.lstrip("-").isdigit() else None


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic, with its readable configuration."""

    name: str
    partitions: int
    config: Mapping[str, str]
    replicas: int | None = None

    @property
    def subject(self) -> Subject:
        return Subject(f"topic {self.name}")

    def number(self, key: str) -> int | None:
        return number_in(self.config, key)


DAY_MS: Final = 86_400_000
SEGMENTS: Final = 7
"""The advised number of segments in the retention time. Kafka deletes whole segments, so with more
segments it deletes less at a time."""


def retention_findings(settings: Settings, ingress: TopicConfig) -> Iterator[Finding]:
    """Yield findings about the retention of the ingress topic."""
    subject, kept_ms = ingress.subject, ingress.number("retention.ms")
    if kept_ms is None:
        if settings.roll_after_ms is None:
            right = Right("DescribeConfigs", "topic", ingress.name)
            yield subject.warn(
                "its retention cannot be read, so no record is rewritten before Kafka deletes it",
                f"Set `roll_after` to half its retention.ms. Or: {grant([right], settings)}",
            )
    elif kept_ms < 0:
        yield subject.ok("keeps records for ever (retention.ms=-1)")
    else:
        yield _retention_time(subject, kept_ms, settings)
        undecided_ms = longest_undecided_ms(settings)
        if kept_ms < 2 * undecided_ms:
            yield subject.warn(
                f"keeps records {shown_duration(kept_ms)}; a half message may stay undecided for "
                f"{shown_duration(undecided_ms)}",
                "Undecided half messages are not rewritten. Raise retention.ms to at least "
                f"{2 * undecided_ms}, or shorten the checks (`transactions`).",
            )
        closed_ms = ingress.number("segment.ms")
        if closed_ms is not None and closed_ms > kept_ms:
            yield subject.advice(
                f"closes a segment after {shown_duration(closed_ms)} (segment.ms={closed_ms}): "
                f"records take room on disk for up to {shown_duration(kept_ms + closed_ms)}",
                f"Set segment.ms={max(kept_ms // SEGMENTS, 1)}.",
            )
    kept_bytes = ingress.number("retention.bytes")
    if kept_bytes is not None and kept_bytes >= 0:
        yield subject.warn(
            f"keeps only {kept_bytes} bytes for each partition: under load records are deleted "
            "before they are rewritten",
            "Set retention.bytes=-1, so that only time limits retention.",
        )


def _retention_time(subject: Subject, kept_ms: int, settings: Settings) -> Finding:
    """Return the finding about the spare time of the retention.

    If the proxy is down for at most the spare time, it can still rewrite all records before Kafka
    deletes them."""
    after_ms = roll_after_ms(settings, kept_ms) or kept_ms
    least_ms = needed_ms(settings, kept_ms)
    spare_ms = kept_ms - least_ms
    kept = f"keeps records {shown_duration(kept_ms)} (retention.ms={kept_ms})"
    waits = (
        f"records pending for longer than {shown_duration(after_ms)} are rewritten"
        if after_ms < settings.max_delay_ms
        else f"max_delay is {shown_duration(settings.max_delay_ms)}"
    )
    if is_too_short(settings, kept_ms):
        return subject.stop(
            f"{kept}; {waits}: Kafka deletes records that the proxy still needs",
            f"Raise retention.ms to {least_ms * ROLL_AT} (-1 keeps all), or set "
            "`roll_after: auto`.",
        )
    found = f"{kept}; {waits}, so the proxy may be down for at most {shown_duration(spare_ms)}"
    if spare_ms >= DAY_MS:
        return subject.ok(found)
    return subject.warn(
        found,
        "If the proxy is down for longer, Kafka deletes needed records, and the proxy refuses to "
        f"start. Raise retention.ms to at least {least_ms + DAY_MS}, or lower `roll_after`.",
    )


STAMPS_BYTES: Final = 1024
HOP_BYTES: Final = 512
"""A rewrite adds at most this many bytes to a record's headers."""


def topic_findings(settings: Settings, topics: Mapping[str, TopicConfig]) -> Iterator[Finding]:
    """Yield findings about existing topics, by role."""
    if ingress := topics.get("ingress"):
        yield from (ingress.subject.stop(*why) for why in unfit(settings, ingress.config))
        if problem := takes_bombs(ingress.config):
            yield ingress.subject.warn(*problem)
        kind = ingress.config.get("message.timestamp.type")
        if kind == "LogAppendTime":
            yield ingress.subject.ok(f"message.timestamp.type is {kind}")
        elif kind is not None and settings.topics.allow_create_time:
            yield ingress.subject.advice(
                f"message.timestamp.type is {kind}: delays start at the time of the producer's "
                "clock",
                "Set message.timestamp.type=LogAppendTime, so that only the broker's clock counts.",
            )
        yield from retention_findings(settings, ingress)
        yield from _partitions(ingress, settings)
        yield from _sizes(ingress, topics.get("dead_letters"), settings)
    own = topics.get("settings")
    if own and own.config and "compact" not in own.config.get("cleanup.policy", ""):
        yield own.subject.warn(
            f"cleanup.policy is {own.config.get('cleanup.policy')}",
            "Set cleanup.policy=compact. The topic must keep each policy that is still in use.",
        )


def _partitions(ingress: TopicConfig, settings: Settings) -> Iterator[Finding]:
    workers, named = settings.workers or 1, settings.topics.partitions
    if workers > ingress.partitions:
        yield ingress.subject.advice(
            f"has {ingress.partitions} partitions for {workers} workers",
            "Workers beyond the number of partitions are idle.",
        )
    if settings.topics.create and ingress.partitions > named:
        yield ingress.subject.advice(
            f"has {ingress.partitions} partitions, `topics: partitions` says {named}",
            "If partitions were added while records were pending, keys now have other "
            "partitions. Ids are valid only within a partition. So a cancel or a replacement by "
            "id misses records that are older than the change. Recall such a record by its origin "
            f"(`timer-recall`). Then set `topics: partitions: {ingress.partitions}`.",
        )


def _sizes(
    ingress: TopicConfig, dead_letters: TopicConfig | None, settings: Settings
) -> Iterator[Finding]:
    taken = ingress.number("max.message.bytes")
    if taken is None:
        return
    least, subject = taken + STAMPS_BYTES, ingress.subject
    yield subject.ok(f"allows {taken} bytes for a record; a rewritten record grows by {HOP_BYTES}")
    sent = number_in(settings.kafka, "message.max.bytes")
    if sent is not None and sent < least:
        yield subject.warn(
            f"allows {taken} bytes for a record, the proxy's client sends at most {sent}",
            f"Remove `message.max.bytes` from `kafka`, or set it to at least {least}. If "
            "records are compressed, set it higher. Larger records end as dead letters "
            "(`too-large`). If a value does not fit, the dead letter does not contain it.",
        )
    kept = None if dead_letters is None else dead_letters.number("max.message.bytes")
    if dead_letters is not None and kept is not None and kept < least:
        yield dead_letters.subject.warn(
            f"allows {kept} bytes for a record, {ingress.name} allows {taken}",
            f"Set max.message.bytes={least} or more. A dead letter has more headers than "
            "its record. A dead letter that is too large loses its value.",
        )


def replication_findings(topics: Iterable[TopicConfig], wanted: Replication) -> Iterator[Finding]:
    """Yield findings about replication. The loss of one disk must not lose a record."""
    for topic in topics:
        replicas, confirming = topic.replicas, topic.number(MIN_INSYNC)
        if replicas is not None and replicas < wanted.factor:
            yield topic.subject.warn(
                f"replicas: {replicas}; the settings ask for {wanted.factor}",
                "Add replicas with kafka-reassign-partitions.sh, or lower `topics: "
                "replication_factor`.",
            )
        if confirming is not None and replicas is not None and confirming > replicas:
            yield topic.subject.stop(
                f"{MIN_INSYNC} is {confirming}, replicas: {replicas}. No write is accepted",
                f"Add replicas, or set {MIN_INSYNC}={replicas}.",
            )
        if confirming is not None and confirming < min(wanted.min_insync, replicas or 0):
            yield topic.subject.warn(
                f"{MIN_INSYNC} is {confirming}, the settings ask for {wanted.min_insync}: "
                f"records are lost if the {confirming} replicas that confirmed them are lost",
                f"Set {MIN_INSYNC}={wanted.min_insync}.",
            )


WEEK_MINUTES: Final = 7 * 24 * 60
METADATA_BYTES: Final = 1024


def broker_config_findings(
    settings: Settings, config: Mapping[str, str], brokers: int
) -> Iterator[Finding]:
    """Yield findings about the broker's configuration. Yield none if it is unreadable."""
    for finding, key, is_wrong, limit, found, remedy in _limits(settings, brokers):
        value = number_in(config, key)
        if value is not None and is_wrong(value, limit):
            names = {"key": key, "value": value, "limit": limit}
            minutes = shown_duration(value * 60_000)
            yield finding(found.format(**names, minutes=minutes), remedy.format(**names))
    protocols = config.get("group.coordinator.rebalance.protocols", "")
    if protocols and "classic" not in protocols:
        yield Subject("broker").stop(
            f"group.coordinator.rebalance.protocols is {protocols}",
            "Add `classic`, which the proxy's consumer group uses.",
        )


Limit: TypeAlias = tuple[
    Callable[[str, str], Finding], str, Callable[[int, int], bool], int, str, str
]
"""Kind of finding, key, `is_wrong`, limit, sentence, remedy. There is a finding if
`is_wrong(value, limit)`."""


def _limits(settings: Settings, brokers: int) -> Iterable[Limit]:
    """Return the limits for keys of the broker's configuration."""
    broker = Subject("broker")
    session_ms, asks = session_timeout_ms(settings), "{key} is {value}, the proxy asks for {limit}"
    session = "Set `kafka: session.timeout.ms: {value}`, or change {key}."
    replicas = "{key} is {value}, brokers: {limit}"
    add_brokers = (
        "If no broker is down, Kafka cannot create the topic, and `run` waits for it. Add "
        "brokers, or set {key}={limit} and restart the broker."
    )
    memory = (
        "The proxy needs its committed offsets. Raise {key} above the longest time for which "
        "the proxy may be stopped."
    )
    return (
        (broker.stop, "group.min.session.timeout.ms", gt, session_ms, asks, session),
        (broker.stop, "group.max.session.timeout.ms", lt, session_ms, asks, session),
        (
            broker.stop,
            "group.max.size",
            lt,
            settings.workers or 1,
            "{key} is {value}, the proxy has {limit} workers",
            "Run fewer workers, or raise {key}.",
        ),
        (
            broker.stop,
            "transaction.max.timeout.ms",
            lt,
            transaction_timeout_ms(settings),
            asks,
            "Raise it, or set `kafka: transaction.timeout.ms: {value}`.",
        ),
        (
            broker.stop,
            "offset.metadata.max.bytes",
            lt,
            METADATA_BYTES,
            "{key} is {value}",
            "Raise it to at least {limit}. The proxy stores the watermark there.",
        ),
        (
            broker.warn,
            "offsets.retention.minutes",
            lt,
            WEEK_MINUTES,
            "deletes the offsets of a group {minutes} after its last member left",
            memory,
        ),
        (broker.warn, "offsets.topic.replication.factor", gt, brokers, replicas, add_brokers),
        (
            broker.warn,
            "transaction.state.log.replication.factor",
            gt,
            brokers,
            replicas,
            add_brokers,
        ),
    )
