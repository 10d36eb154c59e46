"""`rights` and `topics create --print`: topics and rights for an administrator to create.

Nothing here connects to a broker.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

import typer
import yaml

from proxy.cli.terminal import WithBroker, option, say
from proxy.config.settings import Settings, TopicSettings
from proxy.kafka.access import Right, addressed, grant_line, group_right, transactional_right
from proxy.kafka.topics import ENOUGH, changes_topic, own_topics, replication_for

NOT_OF_KUBERNETES: Final = re.compile(r"[^a-z0-9.-]+")
AUDITS_GROUP: Final = "kafka-delay-proxy-audit"
"""The group with which the audit reads topics. It never commits."""
TYPES: Final = {"topic": "Topic", "group": "Group", "transactional-id": "TransactionalID"}
"""Kind of resource -> its name in Terraform."""


class Notation(StrEnum):
    """A tool that reads the declarations."""

    KAFKA = "kafka"
    STRIMZI = "strimzi"
    TERRAFORM = "terraform"


class Role(StrEnum):
    """A user of the broker."""

    PROXY = "proxy"
    PRODUCER = "producer"
    RETRY_CONSUMER = "retry-consumer"
    HALF_MESSAGES = "half-messages"
    WATCH = "watch"
    DEAD_LETTERS = "dead-letters"
    TRACE = "trace"
    AUDIT = "audit"


@dataclass(frozen=True, kw_only=True)
class Asked(WithBroker):
    """Options of `rights`."""

    role: Role = option(
        "The user: the proxy; a producer of requests; a RetryConsumer; a producer of half "
        "messages with its check-backs; `watch`; the commands of `dead-letters`; `trace`; `audit`.",
        "--for",
        default=Role.PROXY,
    )
    topic: list[str] | None = option(
        "For the proxy and the audit: a target, or `orders.*` for all targets that begin with "
        "`orders.`. For other users: a topic that the user reads. Repeatable."
    )
    group: str | None = option(
        "The consumer group of a RetryConsumer, of check-backs, or of dead letters."
    )
    principal: str | None = option("The user's name. Default: `sasl.username`, or NAME.")
    notation: Notation = option(
        "kafka: kafka-acls.sh. strimzi: a KafkaUser. terraform: kafka_acl of Mongey/kafka.",
        "--print",
        default=Notation.KAFKA,
    )


def rights(asked: Asked) -> None:
    """Print the smallest rights of a user, as commands or resources. The broker is not asked."""
    settings = asked.settings
    needed = rights_of(asked.role, settings, asked.topic or (), asked.group)
    name = asked.principal or str(settings.kafka.get("sasl.username", "NAME"))
    for text in declared_rights(needed, name, settings, asked.notation):
        say(*text.splitlines())


def rights_of(
    role: Role, settings: Settings, topics: Sequence[str], group: str | None
) -> list[Right]:
    """Return the smallest rights of a user in this role. Raises typer.BadParameter."""
    ingress = settings.topics.ingress
    if role is Role.PROXY:
        return list(_of_proxy(settings, topics))
    if role is Role.AUDIT:
        return _of_audit(settings, topics)
    if role is Role.PRODUCER:
        return [Right("Write", "topic", ingress)]
    if role is Role.DEAD_LETTERS:
        return _of_dead_letters(settings.topics, group)
    if role is Role.TRACE:
        own = settings.topics
        read = [ingress, own.outcomes, own.dead_letters, own.replay_marks, *topics]
        return [right for topic in read for right in _on(topic, "Read")]
    if not topics:
        raise typer.BadParameter(f"{role} reads topics: name them with --topic")
    reads = [right for topic in topics for right in _on(topic, "Read")]
    if role is Role.WATCH:
        return reads
    if role is Role.HALF_MESSAGES:
        group = group or f"{topics[0]}.listeners"
    elif group is None:
        raise typer.BadParameter("a RetryConsumer has a consumer group: name it with --group")
    else:
        reads += _on(f"{settings.topics.retry_prefix}{group}", "Read", "Create")
    return [*reads, Right("Read", "group", group), Right("Write", "topic", ingress)]


def _of_proxy(settings: Settings, targets: Sequence[str]) -> Iterator[Right]:
    own = settings.topics
    may_create = ("Create",) if own.create else ()
    yield from _on(own.ingress, "Read", "Write", "DescribeConfigs", *may_create)
    yield from _on(own.settings, "Read", "Write", "DescribeConfigs", *may_create)
    yield from _on(own.dead_letters, "Write", "DescribeConfigs", *may_create)
    yield from _on(own.outcomes, "Read", "Write", "DescribeConfigs", *may_create)
    yield from _on(own.changes, "Read", "Write", *may_create)
    for target in targets or settings.targets.allow:
        yield from _on(target, "Write", "DescribeConfigs")
    for prefix in (own.retry_prefix, own.dlq_prefix):
        yield from _on(f"{prefix}*", "Write", "DescribeConfigs", *may_create)
    yield group_right(settings)
    yield transactional_right(settings)


def _of_audit(settings: Settings, targets: Sequence[str]) -> list[Right]:
    own = settings.topics
    read = [own.ingress, own.settings, own.outcomes, own.dead_letters]
    read += targets or settings.targets.allow
    return [
        *(right for topic in read for right in _on(topic, "Read", "DescribeConfigs")),
        Right("Describe", "group", settings.group_id),
        Right("Describe", "group", AUDITS_GROUP),
    ]


def _of_dead_letters(topics: TopicSettings, group: str | None) -> list[Right]:
    """Return the rights to list and replay the letters of the proxy, or of a consumer group."""
    letters = topics.dead_letters_of(group)
    return [
        *_on(letters, "Read"),
        *_on(topics.replay_marks_of(letters), "Read", "Write", "Create"),
        *_on(topics.ingress, "Read", "Write"),
        Right("Write", "transactional-id", topics.replay_id_of(letters)),
    ]


def _on(topic: str, *operations: str) -> list[Right]:
    """Return rights on a topic, on all topics that begin with a name (`orders*`), or on all
    topics (`*`)."""
    name = topic if topic == "*" else topic.removesuffix("*")
    if name != "*" and re.search(r"[*?\[]", name):
        raise typer.BadParameter(
            f"Kafka has no rights for the pattern {topic!r}: name the topics with --topic, or "
            "the beginning of their names, such as orders.*"
        )
    return [Right(one, "topic", name, is_prefix=name != topic) for one in operations]


def declared_rights(
    needed: Iterable[Right], name: str, settings: Settings, notation: Notation
) -> list[str]:
    """Return the lines that grant these rights to the user `name`."""
    resources = [list(same) for _, same in groupby(needed, key=lambda one: one[1:])]
    if notation is Notation.KAFKA:
        return [grant_line(same, settings, name) for same in resources]
    if notation is Notation.STRIMZI:
        acls = [_strimzi_acl(same) for same in resources]
        login = {"authentication": {"type": login}} if (login := _strimzi_login(settings)) else {}
        spec = {**login, "authorization": {"type": "simple", "acls": acls}}
        return [_resource("KafkaUser", name, spec)]
    return [
        _terraform(
            "kafka_acl",
            f"{name} {right.operation} {right.kind} {right.name}{'*' * right.is_prefix}",
            {
                "resource_name": right.name,
                "resource_type": TYPES[right.kind],
                "resource_pattern_type_filter": "Prefixed" if right.is_prefix else "Literal",
                "acl_principal": f"User:{name}",
                "acl_host": "*",
                "acl_operation": right.operation,
                "acl_permission_type": "Allow",
            },
        )
        for same in resources
        for right in same
    ]


def declared_topics(settings: Settings, notation: Notation) -> list[str]:
    """Return the lines that create the proxy's own topics."""
    replication = replication_for(settings.topics, ENOUGH)
    lines = []
    for name, own in {**own_topics(settings), **changes_topic(settings)}.items():
        partitions = settings.topics.partitions if name == settings.topics.ingress else 1
        config = {**own, "min.insync.replicas": str(replication.min_insync)}
        if notation is Notation.KAFKA:
            options = " ".join(f"--config {key}={value}" for key, value in config.items())
            lines.append(
                f"kafka-topics.sh {addressed(settings)} --create --if-not-exists "
                f"--topic {shlex.quote(name)} --partitions {partitions} "
                f"--replication-factor {replication.factor} {options}"
            )
        elif notation is Notation.STRIMZI:
            spec = {"partitions": partitions, "replicas": replication.factor, "config": config}
            lines.append(_resource("KafkaTopic", name, spec))
        else:
            fields = {"name": name, "partitions": partitions}
            more = {"replication_factor": replication.factor, "config": config}
            lines.append(_terraform("kafka_topic", name, {**fields, **more}))
    return lines


def _strimzi_login(settings: Settings) -> str | None:
    if str(settings.kafka.get("sasl.mechanism", "")).upper() == "SCRAM-SHA-512":
        return "scram-sha-512"
    return "tls" if "ssl.certificate.location" in settings.kafka else None


def _strimzi_acl(same: Sequence[Right]) -> dict[str, Any]:
    kind = "transactionalId" if same[0].kind == "transactional-id" else same[0].kind
    pattern = "prefix" if same[0].is_prefix else "literal"
    return {
        "resource": {"type": kind, "name": same[0].name, "patternType": pattern},
        "operations": [right.operation for right in same],
    }


def _resource(kind: str, name: str, spec: dict[str, Any]) -> str:
    """Return a resource of Strimzi. If Kubernetes does not allow the name, put the name into the
    spec."""
    slug = NOT_OF_KUBERNETES.sub("-", name.lower()).strip("-.")
    if slug != name:
        spec = {"topicName" if kind == "KafkaTopic" else "userName": name, **spec}
    document = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": kind,
        "metadata": {"name": slug, "labels": {"strimzi.io/cluster": "my-cluster"}},
        "spec": spec,
    }
    text: str = yaml.safe_dump(document, sort_keys=False)
    return f"---\n{text.rstrip()}"


def _terraform(kind: str, name: str, fields: dict[str, Any]) -> str:
    label = re.sub(r"\W", "_", re.sub(r"\*$", "_any", f"_{name}" if name[0].isdigit() else name))
    lines = _assigned({key: value for key, value in fields.items() if not isinstance(value, dict)})
    for field, value in fields.items():
        if isinstance(value, dict):
            inner = _assigned({json.dumps(key): one for key, one in value.items()}, indent=4)
            lines += [f"  {field} = {{", *inner, "  }"]
    return f'resource "{kind}" "{label}" {{\n' + "\n".join(lines) + "\n}\n"


def _assigned(values: Mapping[str, object], indent: int = 2) -> list[str]:
    """Return a line for each value, aligned as `terraform fmt` does it."""
    width = max(map(len, values))
    return [f"{' ' * indent}{name.ljust(width)} = {_hcl(one)}" for name, one in values.items()]


def _hcl(value: object) -> str:
    """Return a literal of HCL. `${` and `%{` are escaped, because they would begin a template."""
    text: str = json.dumps(value)
    return text.replace("${", "$${").replace("%{", "%%{")
