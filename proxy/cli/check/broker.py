"""What the broker says: is it there, are the topics right, may the proxy do what it must."""

from collections.abc import Iterable, Iterator
from functools import partial

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    DescribeClusterResult,
    MemberDescription,
    TopicDescription,
)

from proxy.cli.check.broker_state import (
    Described,
    Refused,
    TopicConfig,
    describe_topics,
    may_create,
    read_configs,
)
from proxy.cli.check.clock import clock_findings
from proxy.cli.check.findings import Finding, advice, lacks, ok, stop, warn
from proxy.cli.check.retries import group_topic_findings, group_topics
from proxy.cli.check.targets import target_findings
from proxy.cli.check.topics import (
    broker_config_findings,
    coordinator_findings,
    replication_findings,
    topic_findings,
)
from proxy.config.cores import usable_cores
from proxy.config.settings import Settings
from proxy.kafka.access.connection import Connection, client_config
from proxy.kafka.access.rights import (
    Right,
    create_right,
    grant,
    group_right,
    is_refusal,
    lacking,
    rights_on,
    transactional_right,
)
from proxy.kafka.client_settings import session_timeout_ms, transaction_timeout_ms
from proxy.kafka.group.static_member import StaticMember
from proxy.kafka.replication import replication_for

ROLES = ("ingress", "dead_letters", "outcomes", "settings")
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
    for role in ROLES:
        name = getattr(settings.topics, role)
        yield from _topic(admin, name, described[name], configs, settings)
        if name in there:
            partitions = there[name].partitions
            replicas = min((len(one.replicas) for one in partitions), default=None)
            found[role] = TopicConfig(name, len(partitions), configs.get(name, {}), replicas)
    yield from topic_findings(settings, found)
    wanted = replication_for(settings.topics, len(cluster.nodes))
    yield from replication_findings(found.values(), wanted)
    yield from group_topic_findings(settings, described, partial(may_create, admin))
    yield from target_findings(settings, admin)
    yield from broker_config_findings(settings, configs.get("", {}))
    yield from coordinator_findings(configs.get("", {}), len(cluster.nodes))
    yield from _group(admin, settings)
    if settings.topics.settings in there:
        yield from clock_findings(settings)
    yield _transactional_ids(settings)


def _topic(
    admin: AdminClient,
    name: str,
    answer: Described,
    configs: dict[str, dict[str, str]],
    settings: Settings,
) -> Iterator[Finding]:
    subject, needed = f"topic {name}", rights_on(name, settings)
    if isinstance(answer, Refused):
        yield _absent(admin, name, answer.error, settings)
        return
    if missing := lacking(answer, needed):
        yield lacks(subject, missing, settings)
    else:
        yield ok(subject, f"there; partitions: {len(answer.partitions)}")
    if unread := lacking(answer, _read_by_the_api(name, settings)):
        yield advice(
            subject,
            "the admin API cannot wait for what becomes of a cancel",
            grant(unread, settings),
        )
    if name not in configs:
        yield advice(
            subject,
            "its configuration may not be read",
            f"To have it checked: {grant([Right('DescribeConfigs', 'topic', name)], settings)}",
        )


def _read_by_the_api(topic: str, settings: Settings) -> list[Right]:
    return [Right("Read", "topic", topic)] if topic == settings.topics.outcomes else []


def _absent(admin: AdminClient, name: str, error: KafkaError, settings: Settings) -> Finding:
    subject = f"topic {name}"
    if is_refusal(error):
        return lacks(subject, rights_on(name, settings), settings)
    if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
        return stop(subject, error.str(), "See the broker's log.")
    if not settings.topics.create:
        return stop(
            subject,
            "does not exist",
            "Create it: `kafka-delay-proxy topics create`, or set `topics: create: true`.",
        )
    if not may_create(admin, name):
        return lacks(f"{subject}, not there yet", [create_right(name)], settings)
    return ok(subject, "not there; `run` creates it")


def _group(admin: AdminClient, settings: Settings) -> Iterator[Finding]:
    subject = f"group {settings.group_id}"
    answers = admin.describe_consumer_groups(
        [settings.group_id], include_authorized_operations=True, request_timeout=Connection.limit_s
    )
    try:
        group = answers[settings.group_id].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            yield lacks(subject, [group_right(settings)], settings)
        elif error.args[0].code() in NO_GROUP_YET:
            yield ok(subject, "not there yet")
        else:
            yield stop(subject, error.args[0].str(), "See the broker's log.")
        return
    allowed = set(group.authorized_operations or [])
    if allowed and AclOperation.READ not in allowed:
        yield lacks(subject, [group_right(settings)], settings)
    elif group.state in {ConsumerGroupState.DEAD, ConsumerGroupState.UNKNOWN}:
        yield ok(subject, "not there yet")
    else:
        yield ok(subject, f"{group.state.name.lower()}, {len(group.members)} members")
        yield from _twins(settings, group.members)


def _twins(settings: Settings, members: Iterable[MemberDescription]) -> Iterator[Finding]:
    for worker in range(settings.workers or usable_cores()):
        own = StaticMember(settings.instance_name, worker, settings.data_dir, list)
        for member in members:
            if own.is_other(member.member_id):
                yield warn(
                    f"instance {settings.instance_name}",
                    f"a process with another data folder, at {member.host}, has this instance id",
                    "Give every process its own `instance_id`. If that process has just ended, it "
                    f"is out of the group after {session_timeout_ms(settings) / 1000:g} s.",
                )


def _transactional_ids(settings: Settings) -> Finding:
    """No request tells what may be done with them: one that no proxy uses is tried."""
    right = transactional_right(settings)
    subject = f"transactional ids {right.name}…"
    ident = f"{right.name}{settings.instance_name}-check"
    timeout_ms = transaction_timeout_ms(settings)
    producer = Producer(
        client_config(settings, transactional_id=ident, transaction_timeout_ms=timeout_ms)
    )
    try:
        producer.init_transactions(Connection.limit_s)
    except KafkaException as error:
        if is_refusal(error.args[0]):
            return lacks(subject, [right], settings)
        return warn(subject, error.args[0].str(), "See the broker's log.")
    return ok(subject, "may be used")
