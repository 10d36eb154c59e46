"""Operator commands against a real broker."""

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
)

from proxy.cli.app import main
from tests.conftest import StartBroker
from tests.support.installation.rights import ASKING, allow
from tests.support.quiet_clients import admin_client
from tests.support.records import Outgoing, new_topic, read_to_end, write
from tests.support.waiting import wait_for

Call = Callable[..., tuple[int, str, str]]
ACL_LIMIT_S = 180.0
KNOWN_WITHIN_S = 180.0
JAVA_S_PARTITION_OF_O1 = 3
"""Partition of four by Kafka's murmur2 of the key, not by librdkafka's CRC32."""
ROLES = ("ingress", "dead_letters", "outcomes", "settings", "changes")

pytestmark = [pytest.mark.integration, pytest.mark.core]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def call_with(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call_with


@pytest.fixture(autouse=True)
def topics(kafka: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("DELAY_PROXY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS", kafka)
    mark = uuid.uuid4().hex[:8]
    names = {role: f"cli-{role}-{mark}" for role in ROLES}
    for role, name in names.items():
        monkeypatch.setenv(f"DELAY_PROXY_TOPICS__{role.upper()}", name)
    monkeypatch.setenv("DELAY_PROXY_GROUP_ID", f"cli-{mark}")
    return names


def findings(call: Call, *arguments: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    code, out, _ = call("check", "--json", *arguments)
    by_subject: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(out)["findings"]:
        by_subject.setdefault(finding["subject"], []).append(finding)
    return code, by_subject


def test_topics_are_created_once_and_then_left_alone(call: Call, topics: dict[str, str]) -> None:
    code, out, _ = call("topics", "create", "--json")
    assert code == 0
    assert sorted(json.loads(out)["created"]) == sorted(topics.values())
    assert json.loads(call("topics", "create", "--json")[1]) == {"created": []}
    assert f"{topics['ingress']}: exists already" in call("topics", "create")[1]


def test_check_is_content_with_the_topics_the_proxy_makes(call: Call) -> None:
    call("topics", "create")
    code, found = findings(call)
    verdicts = {finding["verdict"] for one in found.values() for finding in one}
    assert code == 0
    assert verdicts <= {"ok", "advice"}


def test_check_says_which_topics_run_would_create(call: Call, topics: dict[str, str]) -> None:
    code, found = findings(call)
    assert code == 0
    assert found[f"topic {topics['ingress']}"][0]["found"] == "does not exist; `run` creates it"


def test_check_stops_at_missing_topics_that_run_may_not_create(
    call: Call, topics: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAY_PROXY_TOPICS__CREATE", "false")
    code, found = findings(call)
    assert code == 1
    assert "topics create" in found[f"topic {topics['outcomes']}"][0]["remedy"]


def test_check_asks_for_the_topics_of_the_groups_that_are_named(
    call: Call, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("topics", "create")
    group = new_topic(kafka, "retry.named").removeprefix("retry.")
    monkeypatch.setenv("DELAY_PROXY_TOPICS__CREATE", "false")
    monkeypatch.setenv("DELAY_PROXY_RETRY__GROUPS", json.dumps({group: {"first_level": 5}}))
    subjects = [f"topic {kind}.{group}" for kind in ("retry", "dlq")]

    def found() -> list[list[dict[str, str]]]:
        by_subject = findings(call)[1]
        return [by_subject.get(subject, []) for subject in subjects]

    wait_for(lambda: not found()[0], KNOWN_WITHIN_S, "the broker to know its new topic")
    assert [one["verdict"] for one in found()[1]] == ["warn"]
    assert findings(call)[0] == 0


def test_check_sees_an_ingress_topic_with_the_producers_time_that_keeps_records_too_short_a_time(
    call: Call, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_topic(kafka, "short", config={"retention.ms": "3600000"})
    monkeypatch.setenv("DELAY_PROXY_TOPICS__INGRESS", name)
    code, found = findings(call)
    assert code == 1
    verdicts = [(one["verdict"], one["found"]) for one in found[f"topic {name}"]]
    assert any(
        "the proxy may be down for at most 30 min" in text
        for verdict, text in verdicts
        if verdict == "warn"
    )
    assert any("CreateTime" in text for verdict, text in verdicts if verdict == "stop")


def test_check_sees_what_the_broker_does_not_allow(
    call: Call, own_broker: StartBroker, topics: dict[str, str]
) -> None:
    broker = own_broker(overrides=ASKING)
    call("topics", "create", "--bootstrap", broker.bootstrap_servers)
    name = topics["dead_letters"]
    allow(broker.bootstrap_servers, name, AclOperation.DESCRIBE)
    where = ("--bootstrap", broker.bootstrap_servers)
    wait_for(lambda: findings(call, *where)[0] == 1, ACL_LIMIT_S, "the broker to apply the ACL")
    found = findings(call, *where)[1]
    assert found[f"topic {name}"][0]["found"] == "the proxy's user lacks Write"


def test_send_writes_the_protocols_headers_and_says_where_and_when(
    call: Call, kafka: str, topics: dict[str, str]
) -> None:
    call("topics", "create")
    options = ["--key", "k", "--value", "v", "--header", "trace=7", "--delay", "1h"]
    code, out, _ = call("send", "--topic", "orders", *options, "--json")
    (record,) = read_to_end(kafka, topics["ingress"], at_least=1)
    said = json.loads(out)
    assert code == 0
    assert (record.key, record.value) == (b"k", b"v")
    assert record.headers == [
        ("timer-topic", b"orders"),
        ("timer-delay", b"1h"),
        ("trace", b"7"),
    ]
    assert said["origin"] == f"{topics['ingress']}/{record.partition}/{record.offset}"
    assert said["due_ms"] == record.timestamp_ms + 3_600_000


def test_send_says_where_the_target_is_not_there_yet(call: Call, kafka: str) -> None:
    call("topics", "create")
    there = new_topic(kafka, "orders")
    for topic, exists in ((there, True), ("nobody-made-it", False)):
        code, out, _ = call("send", "--topic", topic, "--delay", "1h")
        assert code == 0
        assert (f"The topic {topic} does not exist. Create it before the due" in out) is not exists
        assert json.loads(call("send", "--topic", topic, "--json")[1])["topic_exists"] is exists
    _, out, _ = call("send", "--retry-group", "not-there-yet", "--attempt", "1")
    assert "due in retry.not-there-yet" in out
    assert "create it" not in out
    assert "nobody-made-it" not in admin_client(kafka).list_topics(timeout=KNOWN_WITHIN_S).topics


def test_a_record_and_its_cancel_share_a_partition_whatever_the_key(
    call: Call, kafka: str, topics: dict[str, str]
) -> None:
    call("topics", "create")
    call("send", "--topic", "orders", "--key", "k", "--id", "o1", "--delay", "1h")
    code, out, _ = call("cancel", "o1", "--wait", "0", "--json")
    record, cancel = read_to_end(kafka, topics["ingress"], at_least=2)
    assert (code, json.loads(out)["outcome"]) == (0, None)
    assert (record.key, cancel.key) == (b"o1", b"o1")
    assert record.partition == cancel.partition == JAVA_S_PARTITION_OF_O1
    assert (record.header("timer-key"), cancel.header("timer-cancel")) == (b"k", b"o1")


def test_a_cancel_that_nobody_answers_ends_with_1_and_says_why(
    call: Call, kafka: str, topics: dict[str, str]
) -> None:
    call("topics", "create")
    code, out, _ = call("cancel", "o1", "--partition", "2", "--wait", "1s")
    (cancel,) = read_to_end(kafka, topics["ingress"], at_least=1)
    assert code == 1
    assert f"no answer to {topics['ingress']}/2/0 within 1 s" in out
    assert cancel.partition == 2


def test_a_cancel_names_the_partitions_there_are(call: Call, kafka: str) -> None:
    call("topics", "create")
    code, _, err = call("cancel", "o1", "--partition", "4")
    assert code == 1
    assert "Give a number from 0 to 3" in err


def test_send_to_an_ingress_topic_that_is_not_there_creates_nothing(
    call: Call, kafka: str, topics: dict[str, str]
) -> None:
    code, _, err = call("send", "--topic", "orders")
    assert code == 1
    assert f"The topic {topics['ingress']} does not exist" in err
    assert topics["ingress"] not in admin_client(kafka).list_topics(timeout=KNOWN_WITHIN_S).topics


def test_watch_shows_how_late_each_record_is(call: Call, kafka: str) -> None:
    topic = new_topic(kafka, "watched", partitions=2)
    stamps = [("timer-due", b"1000"), ("timer-origin", b"timer.ingress/0/7")]
    write(kafka, topic, [Outgoing(b"k", b"v", stamps, 0), Outgoing(None, None, (), 1)])
    arguments = ["watch", topic, "--from-beginning", "--count", "2"]
    code, out, _ = call(*arguments, "--json")
    delayed, plain = sorted(
        map(json.loads, out.splitlines()), key=lambda one: int(one["partition"])
    )
    assert code == 0
    assert delayed["lateness_ms"] == delayed["arrived_ms"] - 1000
    assert (delayed["key"], delayed["origin"]) == ("k", "timer.ingress/0/7")
    assert (plain["value"], plain["lateness_ms"]) == (None, None)
    assert "not delayed" in call(*arguments)[1]


def test_watch_from_the_end_shows_nothing_old_and_ends_after_its_time(
    call: Call, kafka: str
) -> None:
    topic = new_topic(kafka, "watched")
    write(kafka, topic, [Outgoing(b"old")])
    assert call("watch", topic, "--timeout", "1", "--json")[:2] == (0, "")
