"""What the ingress topic has to be like, above all how long it has to keep records: the rules of
`run` and `check` alike.

A record that waits longer than `roll_after` is written anew to the end of its partition
(docs/guide.md#delays-longer-than-the-ingress-keeps-records). So what must be kept is not the
longest delay, but that time and the time for which the proxy may be down.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from proxy.config.settings import Settings
from proxy.errors import SettingsError

ROLL_AT: Final = 2
"""A record is rewritten when half the ingress topic's retention has passed."""


def roll_after_ms(settings: Settings, retention_ms: int | None) -> int | None:
    """The age at which a waiting record is rewritten; None where none ever ages out."""
    asked_ms = settings.roll_after_ms
    if asked_ms is not None:
        return asked_ms
    return None if retention_ms is None else max(1, retention_ms // ROLL_AT)


def needed_ms(settings: Settings, retention_ms: int) -> int:
    """For how long a record is needed at most, before it has ended or is rewritten."""
    return min(roll_after_ms(settings, retention_ms) or retention_ms, settings.max_delay_ms)


def aging_after_ms(rolled_after_ms: int | None, retention_ms: int | None) -> int | None:
    """The age that nothing needed should reach: half-way between rewriting and deletion."""
    if rolled_after_ms is None or retention_ms is None:
        return None
    return (rolled_after_ms + retention_ms) // 2


def longest_undecided_ms(settings: Settings) -> int:
    """How long a half message, which is never rewritten, may stay undecided."""
    asked = settings.transactions
    return asked.immunity_ms + asked.max_checks * asked.check_interval_ms


class Unfit(NamedTuple):
    """What was found of an ingress topic, and what to do; `found` goes on behind its name."""

    found: str
    remedy: str


def unfit(settings: Settings, config: Mapping[str, str]) -> Iterator[Unfit]:
    """What of its configuration, as the broker words it, keeps the proxy from running.

    How long it keeps records is judged by `is_too_short`. What is not known is not refused.
    """
    if "compact" in config.get("cleanup.policy", ""):
        yield Unfit(
            "is compacted: a waiting record is lost when another comes with its key",
            "Set cleanup.policy=delete.",
        )
    stamps = config.get("message.timestamp.type")
    if stamps == "CreateTime" and not settings.topics.allow_create_time:
        name = settings.topics.ingress
        yield Unfit(
            "keeps the producers' time (message.timestamp.type=CreateTime): their clocks decide "
            "when a delay ends",
            "Let the broker stamp what comes from now on: kafka-configs.sh --bootstrap-server B "
            f"--alter --entity-type topics --entity-name {name} --add-config "
            "message.timestamp.type=LogAppendTime. Or set `topics: allow_create_time: true`, where "
            "you know all producers' clocks.",
        )


def takes_bombs(config: Mapping[str, str]) -> Unfit | None:
    """Return what is wrong where the broker measures batches before it unpacks them.

    A batch of some kilobytes can hold more than any consumer takes.
    """
    kind = config.get("compression.type")
    if kind in {None, "uncompressed"}:
        return None
    return Unfit(
        f"has compression.type={kind}: one small compressed batch can hold more than a consumer "
        "can read, and its partition would stand still",
        "Set compression.type=uncompressed: the broker then refuses such batches and still takes "
        "compressed ones.",
    )


def is_too_short(settings: Settings, retention_ms: int) -> bool:
    """Whether records would be deleted before they have ended or are rewritten."""
    return needed_ms(settings, retention_ms) >= retention_ms


def refuse_unfit(settings: Settings, config: Mapping[str, str], retention_ms: int | None) -> None:
    """Raises SettingsError where the ingress would lose records that wait, or misjudge delays."""
    for found, remedy in unfit(settings, config):
        raise SettingsError(f"The topic {settings.topics.ingress} {found}.", remedy)
    if retention_ms is not None and is_too_short(settings, retention_ms):
        raise SettingsError(
            f"`roll_after` is {settings.roll_after_ms} ms, but {settings.topics.ingress} keeps "
            f"records for {retention_ms} ms (retention.ms): they would be gone before they are "
            "rewritten.",
            "Set `roll_after: auto`, or raise the topic's retention.ms.",
        )
