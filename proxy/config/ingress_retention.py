"""How long the ingress topic has to keep records: the rules of `run` and `check` alike.

A record that waits longer than `roll_after` is written anew to the end of its partition
(docs/guide.md#delays-longer-than-the-ingress-keeps-records). So what must be kept is not the
longest delay, but that time and the time for which the proxy may be down.
"""

from typing import Final

from proxy.config.settings import Settings
from proxy.errors import SettingsError

COMPACTED: Final = (
    "is compacted: a waiting record is lost when another comes with its key",
    "Set cleanup.policy=delete.",
)
"""What was found of such an ingress, and what to do."""
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


def is_compacted(cleanup_policy: str) -> bool:
    """Whether a topic with this cleanup.policy loses records by their keys."""
    return "compact" in cleanup_policy


def refuse_unfit(settings: Settings, cleanup_policy: str, retention_ms: int | None) -> None:
    """Raises SettingsError where the ingress would lose records that wait: by their keys, or before
    `roll_after` has come."""
    if is_compacted(cleanup_policy):
        raise SettingsError(f"The topic {settings.topics.ingress} {COMPACTED[0]}.", COMPACTED[1])
    asked_ms = settings.roll_after_ms
    if asked_ms is not None and retention_ms is not None and asked_ms >= retention_ms:
        raise SettingsError(
            f"`roll_after` is {asked_ms} ms, but {settings.topics.ingress} keeps records for "
            f"{retention_ms} ms (retention.ms): they would be gone before they are rewritten.",
            "Set `roll_after: auto`, or raise the topic's retention.ms.",
        )
