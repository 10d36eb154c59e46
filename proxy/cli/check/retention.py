"""Whether the ingress keeps a record until it has ended, or has been rewritten."""

from collections.abc import Iterator
from typing import Final

from proxy.cli.check.broker_state import TopicConfig, number_in
from proxy.cli.check.findings import Finding, advice, ok, stop, warn
from proxy.cli.terminal.output import shown_duration
from proxy.config.ingress_retention import (
    ROLL_AT,
    is_too_short,
    longest_undecided_ms,
    needed_ms,
    roll_after_ms,
)
from proxy.config.settings import Settings
from proxy.kafka.access.rights import Right, grant

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
