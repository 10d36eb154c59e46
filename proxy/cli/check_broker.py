"""Checks that ask the broker: clocks, topics, rights, the consumer group."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ConfigResource,
    DescribeClusterResult,
    ResourceType,
    TopicDescription,
)
from confluent_kafka.cimpl import NewTopic

from proxy.cli.check_configs import (
    Finding,
    Severity,
    Subject,
    TopicConfig,
    broker_config_findings,
    existing,
    replication_findings,
    topic_findings,
)
from proxy.cli.terminal import shown_duration
from proxy.clock import wall_clock_ms
from proxy.config.machine import DiskReserve, usable_cores
from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import WILDCARDS, Settings
from proxy.config.values import shown_size
from proxy.errors import BrokerRefused
from proxy.kafka.access import (
    Connection,
    Right,
    client_config,
    grant,
    group_right,
    is_refusal,
    lacking,
    rights_on,
    topic_rights,
    transactional_right,
)
from proxy.kafka.broker_clock import STAMP_IT, BrokerClock, ClockAnswer
from proxy.kafka.client_settings import session_timeout_ms, transaction_timeout_ms
from proxy.kafka.group import StaticMember
from proxy.kafka.topics import replication_for
from proxy.protocol.policy import is_legal_topic
from proxy.protocol.position import MetadataUnreadable, Position
from storage.options import new_store_bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker's reason for not describing a resource."""

    error: KafkaError

    @property
    def is_absent(self) -> bool:
        return bool(self.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART)


Described = TopicDescription | Refused


def _answer(asked: Future[Any]) -> Any:
    """Wait for the broker's answer and return it. Return Refused if it refuses."""
    try:
        return asked.result()
    except KafkaException as error:
        return Refused(error.args[0])


def missing_rights(answer: Described, needed: Sequence[Right]) -> list[Right]:
    """Return the rights that the user lacks on a topic. If the topic is hidden, return all."""
    if isinstance(answer, Refused):
        return list(needed) if is_refusal(answer.error) else []
    return lacking(answer, needed)


def describe_topics(admin: AdminClient, names: Sequence[str]) -> dict[str, Described]:
    """Return the description of each topic, with the user's rights. Create no topics."""
    answers = admin.describe_topics(
        TopicCollection(list(names)),
        include_authorized_operations=True,
        request_timeout=Connection.limit_s,
    )
    return {name: _answer(asked) for name, asked in answers.items()}


def _read_configs(
    admin: AdminClient, topics: list[str], broker_id: str
) -> dict[str, dict[str, str]]:
    """Return the configuration of each topic that may be read. The key `""` has the configuration
    of one broker."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    resources.append(ConfigResource(ResourceType.BROKER, broker_id))
    configs: dict[str, dict[str, str]] = {}
    answers = admin.describe_configs(resources, request_timeout=Connection.limit_s)
    for resource, asked in answers.items():
        if not isinstance(entries := _answer(asked), Refused):
            name = resource.name if resource.restype == ResourceType.TOPIC else ""
            configs[name] = {key: entry.value for key, entry in entries.items() if entry.value}
    return configs


def _may_create(admin: AdminClient, topic: str) -> bool:
    """Return whether the user may create the topic. Do not create it."""
    wanted = NewTopic(topic, num_partitions=1)
    answers = admin.create_topics([wanted], validate_only=True, request_timeout=Connection.limit_s)
    answer = _answer(answers[topic])
    return not (isinstance(answer, Refused) and is_refusal(answer.error))


def clock_findings(settings: Settings) -> Iterator[Finding]:
    """Yield findings about clocks.

    The settings topic must exist. The check writes a record to this topic. The record's timestamp
    is the broker's time."""
    topic, limit_ms = settings.topics.settings, int(Connection.limit_s * 1000)
    config = client_config(settings, acks=1, linger_ms=0, message_timeout_ms=limit_ms)
    clock = BrokerClock(lambda: Producer(config), topic, settings.group_id)
    clock.ask()
    late = ClockAnswer(None, KafkaError(KafkaError._TIMED_OUT))
    answer = clock.answer(2 * Connection.limit_s) or late
    wall_ms = wall_clock_ms()
    if answer.error is not None:
        yield Subject("clock").advice(
            f"the broker's time is unknown: {answer.error.str()}",
            f"Grant Write on {topic}. The proxy writes there to learn the broker's time.",
        )
        return
    if answer.time is None:
        yield Subject("clock").warn(
            f"{topic} keeps the producers' timestamps, so the proxy's clock cannot be compared "
            "with the broker's. A proxy whose clock is ahead delivers early",
            f"Let the broker set the timestamps: {STAMP_IT.format(topic)}",
        )
        return
    broker_ms = answer.time.epoch_ms
    lead_ms, wrong = wall_ms - broker_ms, shown_duration(abs(wall_ms - broker_ms))
    mend = "Correct the clock of this machine or of the broker."
    if abs(lead_ms) <= settings.clock.max_step_ms:
        yield Subject("clock").ok(f"differs from the broker's by {abs(lead_ms)} ms")
    elif lead_ms > 0:
        ahead = "ahead of the broker's: the proxy uses the broker's clock until both agree"
        yield Subject("clock").warn(f"{wrong} {ahead}", mend)
    else:
        behind = "behind the broker's: all deliveries would be late by this time"
        yield Subject("clock").warn(f"{wrong} {behind}", mend)
    yield from _watermarks(settings, broker_ms)


def _watermarks(settings: Settings, broker_ms: int) -> Iterator[Finding]:
    for partition, watermark_ms in sorted(_committed_watermarks(settings)):
        ahead_ms = watermark_ms - broker_ms
        if ahead_ms > settings.clock.max_step_ms:
            yield Subject(f"partition {partition}").warn(
                f"its watermark lies {shown_duration(ahead_ms)} ahead of the broker's clock: no "
                "record of this partition fires before the watermark",
                f"Wait, or set `recovery: set_back_watermark: [{partition}]` for one start.",
            )


def _committed_watermarks(settings: Settings) -> list[tuple[int, int]]:
    """Return (partition, watermark) pairs.

    A consumer outside the group asks for the watermarks, because the admin client's call can crash
    the process."""
    found = list[tuple[int, int]]()
    ingress = settings.topics.ingress
    config = client_config(settings, group_id=settings.group_id)
    with closing(Consumer(config)) as consumer, suppress(KafkaException):
        topic = consumer.list_topics(ingress, Connection.limit_s).topics[ingress]
        asked = [TopicPartition(ingress, partition) for partition in topic.partitions]
        for place in consumer.committed(asked, Connection.limit_s):
            with suppress(MetadataUnreadable):
                position = Position.from_metadata(place.offset, place.metadata)
                found.append((place.partition, position.watermark_ms))
    return found


def retry_settings_findings(settings: Settings) -> Iterator[Finding]:
    """Yield findings about retries. Needs only the settings."""
    retry, levels_ms = settings.retry, settings.levels_ms
    if retry.first_level > len(levels_ms):
        yield Subject("retry").advice(
            f"first_level is {retry.first_level}, the highest level is {len(levels_ms)}",
            f"Each retry is delayed by {shown_duration(levels_ms[-1])}. Lower `retry: "
            "first_level` for shorter delays.",
        )
    names, policy = settings.topics, policy_of(settings, None)
    if names.retry_prefix == names.dlq_prefix:
        yield Subject("topics").warn(
            f"retry_prefix and dlq_prefix are both {names.retry_prefix!r}",
            "Set two different prefixes. Otherwise records that failed too often are retried "
            "for ever.",
        )
    for topic in group_topics(settings) or _topics_of(settings, [ANY_GROUP]):
        refusal = policy.refusal(topic, is_derived=True)
        if not is_legal_topic(topic):
            yield Subject("topics").stop(
                f"{topic!r} is not a topic name: records to retry end as dead letters",
                "Correct `topics: retry_prefix` and `dlq_prefix`: a topic name has 1 to 249 of the "
                "characters a-z A-Z 0-9 . _ -",
            )
        elif refusal is not None:
            yield Subject("topics").warn(
                f"{refusal}: records to retry end as dead letters",
                "Correct `targets: deny`, or `topics: retry_prefix` and `dlq_prefix`.",
            )
    if policy.group_refusal(ANY_GROUP) and not retry.groups:
        yield Subject("retry").advice(
            "targets.allow is set and no consumer group is named: retries end as dead letters",
            "Name the groups under `retry: groups`, or add their `retry.<group>` to "
            "`targets: allow`.",
        )


ANY_GROUP = "group"


def group_topics(settings: Settings) -> list[str]:
    """Return the retry and dead-letter topics of the named consumer groups."""
    return _topics_of(settings, sorted(settings.retry.groups))


def _topics_of(settings: Settings, groups: list[str]) -> list[str]:
    prefixes = (settings.topics.retry_prefix, settings.topics.dlq_prefix)
    return [prefix + group for group, prefix in product(groups, prefixes)]


def group_topic_findings(
    settings: Settings, described: Mapping[str, Described], may_create: Callable[[str], bool]
) -> Iterator[Finding]:
    """Yield findings about the topics of the consumer groups in the settings."""
    for topic in group_topics(settings):
        answer, subject = described[topic], Subject(f"topic {topic}")
        if missing := missing_rights(answer, topic_rights(topic, "Write", "Describe")):
            yield subject.lacks(missing, settings, WARN)
        elif not isinstance(answer, Refused) or not answer.is_absent:
            continue
        elif not settings.topics.create:
            yield subject.warn(
                "does not exist; its records are retried, and then end as dead letters",
                "Create it, or set `topics: create: true`.",
            )
        elif not may_create(topic):
            absent = Subject(f"{subject}, does not exist yet")
            yield absent.lacks(topic_rights(topic, "Create"), settings, WARN)


MOST_TARGETS: Final = 200
"""The broker is asked about at most this many topics, because a pattern may match thousands."""
SHOWN: Final = 20
UNDELIVERABLE: Final = (
    "Create the topic, or remove it from `targets: allow`. Until then its records are retried, "
    "and end as dead letters after the last publish attempt."
)
WARN, ADVICE = Severity.WARN, Severity.ADVICE


def target_findings(settings: Settings, admin: AdminClient) -> Iterator[Finding]:
    """Yield findings about the targets that `targets: allow` names, and about existing topics that
    match a pattern there."""
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
    described, faults = describe_topics(admin, asked), list[Finding]()
    for name in asked:
        # Perhaps the user does not mean a topic that only matches a pattern. So advise only.
        subject, severity = Subject(f"target {name}"), WARN if name in named else ADVICE
        answer = described[name]
        if missing := missing_rights(answer, topic_rights(name, "Write", "Describe")):
            faults.append(subject.lacks(missing, settings, severity))
        elif isinstance(answer, Refused):
            found = f"cannot be delivered to: {answer.error.str()}"
            faults.append(Finding(severity, subject, found, UNDELIVERABLE))
    yield from faults[:SHOWN]
    targets, rest = Subject("targets"), len(faults) - SHOWN
    if rest > 0:
        yield targets.advice(
            f"{rest} more topics have the same fault", "Correct the faults above first."
        )
    good = len(asked) - len(faults)
    more = f"; {len(names) - len(asked)} more were not checked" if names != asked else ""
    yield targets.ok(f"{good} of {len(asked)} topics are writable{more}")


ROLES = ("ingress", "dead_letters", "outcomes", "settings")
NO_GROUP_YET = frozenset(
    {
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
    }
)
"""Errors of a broker that does not know the group yet. A broker reports the coordinator errors
until the first consumer group has created the offsets topic."""


def broker_findings(settings: Settings) -> list[Finding]:
    """Return all findings. If the broker is unreachable, return only that finding."""
    try:
        admin = Connection(settings)
    except BrokerRefused as refused:
        return [Subject("broker").stop(refused.found, refused.remedy)]
    try:
        cluster = admin.describe_cluster(request_timeout=admin.limit_s).result()
    except KafkaException as error:
        sentence = admin.sentence(error)
        return [Subject("broker").stop(sentence.found, sentence.remedy)]
    return list(_findings(admin, settings, cluster))


def _findings(
    admin: AdminClient, settings: Settings, cluster: DescribeClusterResult
) -> Iterator[Finding]:
    brokers = len(cluster.nodes)
    yield Subject("broker").ok(f"{brokers} reachable through {settings.bootstrap_servers}")
    if brokers < 3:
        remedy = "Use three brokers for data that must survive the loss of a disk."
        yield Subject("broker").advice(f"{brokers} in the cluster", remedy)
    own = settings.topics.own
    changes = settings.topics.changes
    described = describe_topics(admin, [*own, changes, *group_topics(settings)])
    there = {name: one for name, one in described.items() if isinstance(one, TopicDescription)}
    present = [name for name in own if name in there]
    configs = _read_configs(admin, present, str(cluster.nodes[0].id))
    found = {}
    for role in ROLES:
        name = getattr(settings.topics, role)
        yield from _topic(admin, name, described[name], configs, settings)
        if name in there:
            partitions = there[name].partitions
            replicas = min((len(one.replicas) for one in partitions), default=None)
            found[role] = TopicConfig(name, len(partitions), configs.get(name, {}), replicas)
    if unrecorded := missing_rights(described[changes], topic_rights(changes, "Read", "Write")):
        yield Subject(f"topic {changes}").advice(
            "changes by the admin port are recorded only in the log", grant(unrecorded, settings)
        )
    yield from topic_findings(settings, found)
    if "ingress" in found:
        yield from _room_for(settings, found["ingress"].partitions)
    yield from replication_findings(found.values(), replication_for(settings.topics, brokers))
    yield from group_topic_findings(settings, described, partial(_may_create, admin))
    yield from target_findings(settings, admin)
    yield from broker_config_findings(settings, configs.get("", {}), brokers)
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
    subject = Subject(f"topic {name}")
    if missing := missing_rights(answer, rights_on(name, settings)):
        yield subject.lacks(missing, settings)
    elif isinstance(answer, Refused):
        yield _absent(admin, name, answer, settings)
    else:
        yield subject.ok(f"exists; partitions: {len(answer.partitions)}")
    if isinstance(answer, Refused):
        return
    reads = topic_rights(name, "Read") if name == settings.topics.outcomes else []
    if unread := lacking(answer, reads):
        yield subject.advice(
            "the admin API cannot wait for the outcome of a cancel",
            grant(unread, settings),
        )
    if name not in configs:
        yield subject.advice(
            "the proxy's user may not read the topic's configuration",
            "Grant this right, so that `check` can read the configuration. "
            f"{grant(topic_rights(name, 'DescribeConfigs'), settings)}",
        )


def _absent(admin: AdminClient, name: str, answer: Refused, settings: Settings) -> Finding:
    subject = Subject(f"topic {name}")
    if not answer.is_absent:
        return subject.stop(answer.error.str(), "See the broker's log.")
    if not settings.topics.create:
        return subject.stop(
            "does not exist",
            "Create it: `kafka-delay-proxy topics create`, or set `topics: create: true`.",
        )
    if not _may_create(admin, name):
        missing = Subject(f"{subject}, does not exist yet")
        return missing.lacks(topic_rights(name, "Create"), settings)
    return subject.ok("does not exist; `run` creates it")


def _group(admin: AdminClient, settings: Settings) -> Iterator[Finding]:
    subject = Subject(f"group {settings.group_id}")
    answers = admin.describe_consumer_groups(
        [settings.group_id], include_authorized_operations=True, request_timeout=Connection.limit_s
    )
    group = _answer(answers[settings.group_id])
    if isinstance(group, Refused):
        if group.error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            yield subject.lacks([group_right(settings)], settings)
        elif group.error.code() in NO_GROUP_YET:
            yield subject.ok("not there yet")
        else:
            yield subject.stop(group.error.str(), "See the broker's log.")
        return
    allowed = set(group.authorized_operations or [])
    if allowed and AclOperation.READ not in allowed:
        yield subject.lacks([group_right(settings)], settings)
    elif group.state in {ConsumerGroupState.DEAD, ConsumerGroupState.UNKNOWN}:
        yield subject.ok("not there yet")
    else:
        yield subject.ok(f"{group.state.name.lower()}, {len(group.members)} members")
        for worker, member in product(range(settings.workers or usable_cores()), group.members):
            own = StaticMember(settings.instance_name, worker, settings.data_dir, list)
            if own.is_other(member.member_id):
                yield _twin(settings, member.host)


def _twin(settings: Settings, host: str) -> Finding:
    return Subject(f"instance {settings.instance_name}").warn(
        f"a process at {host} with another data folder uses this instance id",
        "Give every process its own `instance_id`. If that process has just ended, it leaves "
        f"the group after {session_timeout_ms(settings) / 1000:g} s.",
    )


def _room_for(settings: Settings, partitions: int) -> Iterator[Finding]:
    """Yield a finding if this disk has no room for the partitions that have no files there yet."""
    partition_bytes = new_store_bytes(settings.store, settings.wheel.slots)
    size_bytes, _used, free_bytes = shutil.disk_usage(existing(settings.data_dir))
    room_bytes = free_bytes - DiskReserve(settings.disk_reserve_bytes).of(size_bytes)
    wheels = settings.data_dir.glob(f"{settings.topics.ingress}-*@*/{settings.store}")
    new = partitions - sum(wheel.stat().st_size >= partition_bytes for wheel in wheels)
    if partition_bytes and new * partition_bytes > room_bytes:
        yield Subject("data_dir").warn(
            f"a new partition takes {shown_size(partition_bytes)} of disk at once: there is room "
            f"for {max(0, room_bytes) // partition_bytes} of {new} new partitions",
            "If this instance may have to serve all partitions, choose a larger disk for "
            "`data_dir`, or lower `wheel.slots`.",
        )


def _transactional_ids(settings: Settings) -> Finding:
    """Return the finding about the right to use transactional ids.

    Try an id that no proxy uses, because Kafka has no request for this right."""
    right = transactional_right(settings)
    subject = Subject(f"transactional ids {right.name}…")
    ident = f"{right.name}{settings.instance_name}-check"
    timeout_ms = transaction_timeout_ms(settings)
    producer = Producer(
        client_config(settings, transactional_id=ident, transaction_timeout_ms=timeout_ms)
    )
    try:
        producer.init_transactions(Connection.limit_s)
    except KafkaException as error:
        if is_refusal(error.args[0]):
            return subject.lacks([right], settings)
        return subject.warn(error.args[0].str(), "See the broker's log.")
    return subject.ok("allowed")
