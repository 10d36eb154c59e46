"""Whether what fails can be tried again: retry and dead-letter topics of consumer groups."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product

from confluent_kafka import KafkaError

from proxy.cli.check.broker_state import Described, Refused
from proxy.cli.check.findings import Finding, Severity, advice, lacks, stop, warn
from proxy.cli.terminal.output import shown_duration
from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import Settings
from proxy.kafka.access.rights import create_right, is_refusal, lacking, target_rights
from proxy.requests.topic_names import is_legal_topic

ANY_GROUP = "group"


def retry_settings_findings(settings: Settings) -> Iterator[Finding]:
    """What the settings alone say of retries."""
    retry, levels_ms = settings.retry, settings.levels_ms
    if retry.first_level > len(levels_ms):
        yield advice(
            "retry",
            f"first_level is {retry.first_level}, the highest level is {len(levels_ms)}",
            f"Each retry waits {shown_duration(levels_ms[-1])}; lower `retry: first_level` for "
            "shorter ones.",
        )
    names = settings.topics
    if names.retry_prefix == names.dlq_prefix:
        yield warn(
            "topics",
            f"retry_prefix and dlq_prefix are both {names.retry_prefix!r}",
            "Give them two prefixes: what has failed too often would be tried again for ever.",
        )
    yield from _names(settings)
    if policy_of(settings, None).group_refusal(ANY_GROUP) and not settings.retry.groups:
        yield advice(
            "retry",
            "targets.allow is narrowed and no consumer group is named: retries end as dead letters",
            "Name the groups under `retry: groups`, or add their `retry.<group>` to "
            "`targets: allow`.",
        )


def _names(settings: Settings) -> Iterator[Finding]:
    policy = policy_of(settings, None)
    for topic in group_topics(settings) or _pairs(settings, [ANY_GROUP]):
        refusal = policy.refusal(topic, is_derived=True)
        if not is_legal_topic(topic):
            yield stop(
                "topics",
                f"{topic!r} is no topic name: what is to be tried again ends as a dead letter",
                "Correct `topics: retry_prefix` and `dlq_prefix`: a topic name has 1 to 249 of the "
                "characters a-z A-Z 0-9 . _ -",
            )
        elif refusal is not None:
            yield warn(
                "topics",
                f"{refusal}: what is to be tried again ends as a dead letter",
                "Correct `targets: deny`, or `topics: retry_prefix` and `dlq_prefix`.",
            )


def group_topics(settings: Settings) -> list[str]:
    """The retry and dead-letter topics of the groups that the settings name."""
    return _pairs(settings, sorted(settings.retry.groups))


def _pairs(settings: Settings, groups: list[str]) -> list[str]:
    prefixes = (settings.topics.retry_prefix, settings.topics.dlq_prefix)
    return [prefix + group for group, prefix in product(groups, prefixes)]


def group_topic_findings(
    settings: Settings, described: Mapping[str, Described], may_create: Callable[[str], bool]
) -> Iterator[Finding]:
    """What the broker says of the topics of the groups that the settings name."""
    for topic in group_topics(settings):
        answer = described[topic]
        if isinstance(answer, Refused):
            yield from _refused(topic, answer.error, settings, may_create)
            continue
        if missing := lacking(answer, target_rights(topic)):
            yield lacks(f"topic {topic}", missing, settings, Severity.WARN)


def _refused(
    topic: str, error: KafkaError, settings: Settings, may_create: Callable[[str], bool]
) -> Iterator[Finding]:
    subject = f"topic {topic}"
    if is_refusal(error):
        yield lacks(subject, target_rights(topic), settings, Severity.WARN)
    elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and not settings.topics.create:
        yield warn(
            subject,
            "does not exist; records for it are put off, and end as dead letters",
            "Create it, or set `topics: create: true`.",
        )
    elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and not may_create(topic):
        yield lacks(f"{subject}, not there yet", [create_right(topic)], settings, Severity.WARN)
