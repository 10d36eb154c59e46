"""Requirements on the ingress topic, and the policy, both derived from the settings.

Records are rewritten at the age `roll_after`. So retention must cover only `roll_after` and the
proxy's downtime (docs/guide.md#delays-longer-than-the-ingress-keeps-records).
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from proxy.config.settings import RetryGroupSettings, Settings
from proxy.errors import SettingsError
from proxy.protocol.policy import REQUEST_KINDS, Policy, RetryGroup

ROLL_AT: Final = 2
"""By default a record is rewritten at the age of the ingress retention divided by this."""


def roll_after_ms(settings: Settings, retention_ms: int | None) -> int | None:
    """Return the age at which a pending record is rewritten. None: never."""
    asked_ms = settings.roll_after_ms
    if asked_ms is not None:
        return asked_ms
    return None if retention_ms is None else max(1, retention_ms // ROLL_AT)


def needed_ms(settings: Settings, retention_ms: int) -> int:
    """Return the time for which the ingress must keep a record: until it ends or is rewritten."""
    return min(roll_after_ms(settings, retention_ms) or retention_ms, settings.max_delay_ms)


def aging_after_ms(rolled_after_ms: int | None, retention_ms: int | None) -> int | None:
    """Return the age that no pending record should reach: halfway from rewriting to deletion."""
    if rolled_after_ms is None or retention_ms is None:
        return None
    return (rolled_after_ms + retention_ms) // 2


def longest_undecided_ms(settings: Settings) -> int:
    """Return the longest time for which a half message stays undecided. It is not rewritten
    meanwhile."""
    asked = settings.transactions
    return asked.immunity_ms + asked.max_checks * asked.check_interval_ms


class Unfit(NamedTuple):
    """A fault of an ingress topic. `found` continues a sentence after the topic's name."""

    found: str
    remedy: str


def unfit(settings: Settings, config: Mapping[str, str]) -> Iterator[Unfit]:
    """Yield the faults in the topic's configuration except retention. Unknown values are no
    faults."""
    if "compact" in config.get("cleanup.policy", ""):
        yield Unfit(
            "is compacted: a pending record is lost when another record with its key arrives",
            "Set cleanup.policy=delete.",
        )
    stamps = config.get("message.timestamp.type")
    if stamps == "CreateTime" and not settings.topics.allow_create_time:
        name = settings.topics.ingress
        yield Unfit(
            "keeps the producers' time (message.timestamp.type=CreateTime): delays end by the "
            "producers' clocks",
            "Let the broker set the timestamps of new records: kafka-configs.sh "
            f"--bootstrap-server B --alter --entity-type topics --entity-name {name} "
            "--add-config message.timestamp.type=LogAppendTime. Or set `topics: "
            "allow_create_time: true` if you trust all producers' clocks.",
        )


def takes_bombs(config: Mapping[str, str]) -> Unfit | None:
    """Return a fault if the topic accepts small compressed batches that unpack to more than a
    consumer can read."""
    kind = config.get("compression.type")
    if kind in {None, "uncompressed"}:
        return None
    return Unfit(
        f"has compression.type={kind}: a small compressed batch can hold more than a consumer "
        "can read, which would stop its partition",
        "Set compression.type=uncompressed. The broker then rejects such batches and still "
        "accepts compressed ones.",
    )


def is_too_short(settings: Settings, retention_ms: int) -> bool:
    """Return whether records would be deleted before they end or are rewritten."""
    return needed_ms(settings, retention_ms) >= retention_ms


def refuse_unfit(settings: Settings, config: Mapping[str, str], retention_ms: int | None) -> None:
    """Raise SettingsError if the ingress would lose pending records or misjudge delays."""
    for found, remedy in unfit(settings, config):
        raise SettingsError(f"The topic {settings.topics.ingress} {found}.", remedy)
    if retention_ms is not None and is_too_short(settings, retention_ms):
        raise SettingsError(
            f"`roll_after` is {settings.roll_after_ms} ms, but {settings.topics.ingress} keeps "
            f"records for {retention_ms} ms (retention.ms), so they are deleted before they are "
            "rewritten.",
            "Set `roll_after: auto`, or raise the topic's retention.ms.",
        )


RESERVED: Final = ("timer.*",)
"""Topics that may belong to another proxy. Producers must not reach them through this proxy."""


def policy_of(settings: Settings, retention_ms: int | None) -> Policy:
    """Return the policy. `retention_ms` is the ingress topic's retention. None: for ever."""
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
    most = group.max_attempts or settings.retry.max_attempts
    if group.policy == "custom":
        return RetryGroup(name, group.delays_ms, most)
    if group.policy == "exponential":
        doubled = [group.first_delay_ms << n for n in range(min(most, 63))]
        until = next((n for n, ms in enumerate(doubled) if ms >= group.max_delay_ms), most)
        return RetryGroup(name, (*doubled[:until], group.max_delay_ms)[:most], most)
    first, levels_ms = group.first_level or settings.retry.first_level, settings.levels_ms
    return RetryGroup(name, levels_ms[first - 1 :] or levels_ms[-1:], most)
