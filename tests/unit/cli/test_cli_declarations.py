"""Topics and rights as an administrator's tools take them. No broker is asked."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import yaml

from spark_jobs.kafka.broker import READER

Call = Callable[..., tuple[int, str, str]]
KAFKA = "kafka-acls.sh --bootstrap-server k:9093 --command-config admin.properties --add"
SECURED = ("--set", "kafka.security.protocol=SASL_SSL", "-b", "k:9093")


def printed(call: Call, *words: str) -> str:
    code, out, err = call(*words)
    assert code == 0, err
    return out


def test_the_rights_of_the_proxy_are_the_lines_of_the_page(call: Call) -> None:
    lines = printed(call, "rights", "--topic", "orders*", "--principal", "p", *SECURED).splitlines()
    allow = f"{KAFKA} --allow-principal User:p"
    prefixed = "--resource-pattern-type prefixed"
    write = "--operation Write --operation DescribeConfigs"
    assert lines == [
        f"{allow} --operation Read {write} --operation Create --topic timer.ingress",
        f"{allow} --operation Read {write} --operation Create --topic timer.settings",
        f"{allow} {write} --operation Create --topic timer.dead-letters",
        f"{allow} --operation Read {write} --operation Create --topic timer.outcomes",
        f"{allow} --operation Read --operation Write --operation Create --topic timer.changes",
        f"{allow} {write} --topic orders {prefixed}",
        f"{allow} {write} --operation Create --topic retry. {prefixed}",
        f"{allow} {write} --operation Create --topic dlq. {prefixed}",
        f"{allow} --operation Read --group delay-proxy",
        f"{allow} --operation Write --transactional-id delay-proxy- {prefixed}",
    ]


@pytest.mark.parametrize(
    ("chosen", "letters"), [((), "timer.dead-letters"), (("--group", "g"), "dlq.g")]
)
def test_the_rights_of_the_commands_for_dead_letters(
    call: Call, chosen: tuple[str, ...], letters: str
) -> None:
    words = ("--for", "dead-letters", "--principal", "p", *chosen, *SECURED)
    allow, change = f"{KAFKA} --allow-principal User:p", "--operation Read --operation Write"
    assert printed(call, "rights", *words).splitlines() == [
        f"{allow} --operation Read --topic {letters}",
        f"{allow} {change} --operation Create --topic {letters}.replayed",
        f"{allow} {change} --topic timer.ingress",
        f"{allow} --operation Write --transactional-id {letters}.replay",
    ]


def test_the_rights_of_trace_are_reads(call: Call) -> None:
    out = printed(call, "rights", "--for", "trace", "--topic", "b*", "--principal", "p", *SECURED)
    names = ("timer.ingress", "timer.outcomes", "timer.dead-letters", "timer.dead-letters.replayed")
    reads = [f"{KAFKA} --allow-principal User:p --operation Read --topic {name}" for name in names]
    last = f"{KAFKA} --allow-principal User:p --operation Read --topic b."
    assert out.splitlines()[:-1] == reads
    assert out.splitlines()[-1].startswith(last.removesuffix("."))


def test_the_rights_of_the_audit_are_those_of_its_page(call: Call) -> None:
    chosen = ("--set", "targets.allow=a, b.*", "--principal", "p", *SECURED)
    out = printed(call, "rights", "--for", "audit", *chosen)
    allow = f"{KAFKA} --allow-principal User:p"
    read = f"{allow} --operation Read --operation DescribeConfigs --topic"
    own = ("timer.ingress", "timer.settings", "timer.outcomes", "timer.dead-letters")
    assert out.splitlines() == [
        *(f"{read} {topic}" for topic in (*own, "a")),
        f"{read} b. --resource-pattern-type prefixed",
        f"{allow} --operation Describe --group delay-proxy",
        f"{allow} --operation Describe --group {READER}",
    ]


def test_settings_name_the_targets_and_decide_about_create(call: Call) -> None:
    chosen = ("--set", "targets.allow=a, b.*", "--set", "topics.create=false")
    out = printed(call, "rights", *chosen)
    assert "Create" not in out
    assert "--operation DescribeConfigs --topic a\n" in out
    assert "--operation DescribeConfigs --topic b. --resource-pattern-type prefixed\n" in out


def test_a_user_of_strimzi_has_its_login_and_one_entry_for_each_resource(call: Call) -> None:
    scram = ("--set", "kafka.sasl.mechanism=SCRAM-SHA-512")
    words = ("--for", "retry-consumer", "--topic", "orders", "--topic", "b*", "--group", "g")
    out = printed(call, "rights", "--print", "strimzi", "--principal", "My_User", *words, *scram)
    user = yaml.safe_load(out)
    assert (user["apiVersion"], user["kind"]) == ("kafka.strimzi.io/v1", "KafkaUser")
    assert (user["metadata"]["name"], user["spec"]["userName"]) == ("my-user", "My_User")
    assert user["spec"]["authentication"] == {"type": "scram-sha-512"}
    acls = user["spec"]["authorization"]["acls"]
    found = [(*acl["resource"].values(), *acl["operations"]) for acl in acls]
    assert found == [
        ("topic", "orders", "literal", "Read"),
        ("topic", "b", "prefix", "Read"),
        ("topic", "retry.g", "literal", "Read", "Create"),
        ("group", "g", "literal", "Read"),
        ("topic", "timer.ingress", "literal", "Write"),
    ]


def test_terraform_has_a_resource_for_each_operation_with_a_name_of_its_own(call: Call) -> None:
    out = printed(call, "rights", "--print", "terraform", "--topic", "a${b}", "--topic", "a*")
    names = re.findall(r'^resource "kafka_acl" "([A-Za-z_]\w*)" \{$', out, re.MULTILINE)
    assert len(names) == len(set(names)) == out.count("acl_operation") > 15
    assert '  resource_name                = "a$${b}"\n' in out
    assert '  resource_type                = "TransactionalID"\n' in out
    assert '  resource_pattern_type_filter = "Prefixed"\n' in out


def test_topics_are_declared_as_run_would_create_them(call: Call) -> None:
    kafka = printed(call, "topics", "create", "--print", "kafka", *SECURED).splitlines()
    assert len(kafka) == 5
    assert kafka[0] == (
        "kafka-topics.sh --bootstrap-server k:9093 --command-config admin.properties --create "
        "--if-not-exists --topic timer.ingress --partitions 4 --replication-factor 3 "
        "--config message.timestamp.type=LogAppendTime --config compression.type=uncompressed "
        "--config retention.ms=1209600000 --config min.insync.replicas=2"
    )
    chosen = ("--set", "topics.settings=Timer_s", "--set", "topics.replication_factor=1")
    topics = printed(call, "topics", "create", "--print", "strimzi", *chosen)
    *_, last, _changes = yaml.safe_load_all(topics)
    assert last["metadata"]["name"] == "timer-s"
    assert last["spec"]["topicName"] == "Timer_s"
    assert (last["spec"]["partitions"], last["spec"]["replicas"]) == (1, 1)
    assert last["spec"]["config"]["cleanup.policy"] == "compact"
    assert last["spec"]["config"]["min.insync.replicas"] == "1"
    terraform = printed(call, "topics", "create", "--print", "terraform")
    assert terraform.count('resource "kafka_topic"') == 5
    assert '    "cleanup.policy"         = "compact"\n' in terraform
    assert re.search(r'  name += "timer.ingress"\n  partitions += 4\n', terraform)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--topic", "a*b"), "no rights for the pattern"),
        (("--set", "targets.allow=a?b"), "no rights for the pattern"),
        (("--for", "watch"), "watch reads topics"),
        (("--for", "half-messages"), "half-messages reads topics"),
        (("--for", "retry-consumer", "--topic", "a"), "name it with --group"),
    ],
)
def test_what_cannot_be_declared_is_refused(call: Call, words: tuple[str, ...], found: str) -> None:
    code, out, err = call("rights", *words)
    assert (code, out) == (2, "")
    assert found in " ".join(err.replace("│", " ").split())
