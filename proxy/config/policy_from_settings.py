"""The policy that follows from the settings: the part that decides what becomes of records."""

from typing import Final

from proxy.config.ingress_retention import roll_after_ms
from proxy.config.settings import RetryGroupSettings, Settings
from proxy.protocol.policy import REQUEST_KINDS, Policy, RetryGroup

RESERVED: Final = ("timer.*",)
"""Topics of any proxy: one proxy must not write to another's on a producer's behalf."""


def policy_of(settings: Settings, retention_ms: int | None) -> Policy:
    """The policy. `retention_ms`: how long the ingress topic keeps records, None for ever."""
    return Policy(
        levels_ms=settings.levels_ms,
        max_delay_ms=settings.max_delay_ms,
        max_past_ms=settings.max_past_ms,
        allow=settings.targets.allow,
        deny=settings.targets.deny,
        own_topics=settings.topics.never_targets,
        roll_after_ms=roll_after_ms(settings, retention_ms),
        retry_first_level=settings.retry.first_level,
        retry_max_attempts=settings.retry.max_attempts,
        retry_groups=tuple(
            _retry_group(name, group, settings)
            for name, group in sorted(settings.retry.groups.items())
        ),
        retry_prefix=settings.topics.retry_prefix,
        dlq_prefix=settings.topics.dlq_prefix,
        immunity_ms=settings.transactions.immunity_ms,
        check_interval_ms=settings.transactions.check_interval_ms,
        max_checks=settings.transactions.max_checks,
        aliases=settings.header_aliases,
        recalls_in=settings.topics.ingress,
        reserved=RESERVED,
        marks=(settings.topics.replay_marks_of(f"{settings.topics.dlq_prefix}*"),),
        checks_groups=True,
        serves=None if settings.requests.serve == REQUEST_KINDS else settings.requests.serve,
        proves_recalls=not settings.requests.unproven_recalls,
    )


def _retry_group(name: str, group: RetryGroupSettings, settings: Settings) -> RetryGroup:
    """RocketMQ's three policies: levels, doubling delays with a bound, a list of one's own."""
    most = group.max_attempts or settings.retry.max_attempts
    if group.policy == "custom":
        return RetryGroup(name, group.delays_ms, most)
    if group.policy == "exponential":
        doubled = [group.first_delay_ms << n for n in range(min(most, 63))]
        until = next((n for n, ms in enumerate(doubled) if ms >= group.max_delay_ms), most)
        return RetryGroup(name, (*doubled[:until], group.max_delay_ms)[:most], most)
    first, levels_ms = group.first_level or settings.retry.first_level, settings.levels_ms
    return RetryGroup(name, levels_ms[first - 1 :] or levels_ms[-1:], most)
