"""What the broker says: is it there, are the topics right, may the proxy do what it must."""

from collections.abc import Iterator

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    DescribeClusterResult,
    TopicDescription,
)

from proxy.cli.check.broker_state import (
    Described,
    Refused,
    TopicConfig,
    describe_topics,
    lacking_rights,
    read_configs,
)
from proxy.cli.check.clock import clock_findings
from proxy.cli.check.findings import Finding, advice, ok, stop
from proxy.cli.check.retries import group_topic_findings, group_topics
from proxy.cli.check.topics import (
    broker_config_findings,
    replication_findings,
    topic_findings,
)
from proxy.cli.kafka.connection import Connection
from proxy.config.settings import Settings
from proxy.kafka.replication import replication_for

NEEDED = {
    "ingress": {AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE},
    "dead_letters": {AclOperation.WRITE, AclOperation.DESCRIBE},
    "outcomes": {AclOperation.WRITE, AclOperation.DESCRIBE},
    "settings": {AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE},
}
NO_GROUP_YET = frozenset(
    {
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
    }
)
"""The last three: a broker makes its offsets topic when the first group is asked for."""


def broker_findings(settings: Settings) -> list[Finding]:
    """Everything the broker can tell; just the one finding when it cannot be reached."""
    connection = Connection(settings)
    admin = connection.admin
    try:
        cluster = admin.describe_cluster(request_timeout=Connection.limit_s).result()
    except KafkaException as error:
        sentence = connection.sentence(error)
        return [stop("broker", sentence.found, sentence.remedy)]
    return [*_cluster(cluster, settings), *_questions(admin, settings, cluster)]


def _cluster(cluster: DescribeClusterResult, settings: Settings) -> Iterator[Finding]:
    nodes = len(cluster.nodes)
    yield ok("broker", f"{nodes} reachable through {settings.bootstrap_servers}")
    if nodes < 3:
        yield advice(
            "broker", f"{nodes} in the cluster", "For data that must survive a disk, use three."
        )


def _questions(
    admin: AdminClient, settings: Settings, cluster: DescribeClusterResult
) -> Iterator[Finding]:
    own = settings.topics.own
    described = describe_topics(admin, [*own, *group_topics(settings)])
    there = {name: one for name, one in described.items() if isinstance(one, TopicDescription)}
    present = [name for name in own if name in there]
    configs = read_configs(admin, present, str(cluster.nodes[0].id))
    found = {}
    for role in NEEDED:
        name = getattr(settings.topics, role)
        yield from _topic(role, name, described[name], configs, settings)
        if name in there:
            partitions = there[name].partitions
            replicas = min((len(one.replicas) for one in partitions), default=None)
            found[role] = TopicConfig(name, len(partitions), configs.get(name, {}), replicas)
    yield from topic_findings(settings, found)
    wanted = replication_for(settings.topics, len(cluster.nodes))
    yield from replication_findings(found.values(), wanted)
    yield from group_topic_findings(settings, described)
    yield from broker_config_findings(settings, configs.get("", {}))
    yield from _group(admin, settings)
    if settings.topics.settings in there:
        yield from clock_findings(admin, settings)


def _topic(
    role: str, name: str, answer: Described, configs: dict[str, dict[str, str]], settings: Settings
) -> Iterator[Finding]:
    subject = f"topic {name}"
    if isinstance(answer, Refused):
        yield _absent(subject, answer.error, settings)
        return
    if missing := lacking_rights(answer, NEEDED[role]):
        yield stop(subject, f"the proxy's user lacks {missing}", f"Grant {missing} on the topic.")
    else:
        yield ok(subject, f"there; partitions: {len(answer.partitions)}")
    if name not in configs:
        yield advice(
            subject,
            "its configuration may not be read",
            "Grant DescribeConfigs to have it checked.",
        )


def _absent(subject: str, error: KafkaError, settings: Settings) -> Finding:
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return stop(subject, "the proxy's user may not see it", "Grant Describe on the topic.")
    if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
        return stop(subject, error.str(), "See the broker's log.")
    if settings.topics.create:
        return ok(subject, "not there; `run` creates it")
    return stop(
        subject,
        "does not exist",
        "Create it: `kafka-delay-proxy topics create`, or set `topics: create: true`.",
    )


def _group(admin: AdminClient, settings: Settings) -> Iterator[Finding]:
    subject = f"group {settings.group_id}"
    answers = admin.describe_consumer_groups(
        [settings.group_id], include_authorized_operations=True, request_timeout=Connection.limit_s
    )
    try:
        group = answers[settings.group_id].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            yield stop(subject, "the proxy's user may not use it", "Grant Read on the group.")
        elif error.args[0].code() in NO_GROUP_YET:
            yield ok(subject, "not there yet")
        else:
            yield stop(subject, error.args[0].str(), "See the broker's log.")
        return
    allowed = set(group.authorized_operations or [])
    if allowed and AclOperation.READ not in allowed:
        yield stop(subject, "the proxy's user lacks Read", "Grant Read on the group.")
    elif group.state in {ConsumerGroupState.DEAD, ConsumerGroupState.UNKNOWN}:
        yield ok(subject, "not there yet")
    else:
        yield ok(subject, f"{group.state.name.lower()}, {len(group.members)} members")
