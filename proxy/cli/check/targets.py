"""Whether the topics that `targets.allow` names are there, and may be written to."""

from collections.abc import Iterator
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from proxy.cli.check.broker_state import Described, Refused, describe_topics
from proxy.cli.check.findings import Finding, Severity, advice, lacks, ok
from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import Settings
from proxy.config.target_limit import WILDCARDS
from proxy.kafka.access.connection import Connection
from proxy.kafka.access.rights import is_refusal, lacking, target_rights

MOST_TARGETS: Final = 200
"""So many topics are asked about: a pattern may mean thousands."""
SHOWN: Final = 20


def target_findings(settings: Settings, admin: AdminClient) -> Iterator[Finding]:
    """Ask about each topic named, and about existing topics that fit a pattern."""
    refusal = policy_of(settings, None).refusal
    named = [name for name in settings.targets.allow if WILDCARDS.isdisjoint(name)]
    try:
        there = sorted(admin.list_topics(timeout=Connection.limit_s).topics)
    except KafkaException:
        there = []
    names = [name for name in dict.fromkeys([*named, *there]) if refusal(name) is None]
    asked = names[:MOST_TARGETS]
    if not asked:
        return
    described = describe_topics(admin, asked)
    findings = (_finding(name, described[name], settings, name in named) for name in asked)
    found = [one for one in findings if one is not None]
    yield from found[:SHOWN]
    if len(found) > SHOWN:
        rest = len(found) - SHOWN
        yield advice("targets", f"{rest} more topics have such faults", "Mend those above first.")
    good = len(asked) - len(found)
    more = f"; {len(names) - len(asked)} more were not asked about" if names != asked else ""
    yield ok("targets", f"{good} of {len(asked)} topics may be written to{more}")


def _finding(name: str, answer: Described, settings: Settings, is_named: bool) -> Finding | None:
    """What is wrong with a topic. That a pattern fits it does not say that it is meant."""
    subject, needed = f"target {name}", target_rights(name)
    severity = Severity.WARN if is_named else Severity.ADVICE
    if not isinstance(answer, Refused):
        missing = lacking(answer, needed)
        return lacks(subject, missing, settings, severity) if missing else None
    if is_refusal(answer.error):
        return lacks(subject, needed, settings, severity)
    return Finding(
        severity,
        subject,
        f"cannot be delivered to: {answer.error.str()}",
        "Create the topic, or take it out of `targets: allow`. Until then its records are tried "
        "again, and end as dead letters after the last attempt.",
    )
