"""The embedded broker is a complete broker, and leaves nothing behind."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from proxy.embedded import EmbeddedBroker
from proxy.embedded.server import BrokerFailed, DataFolder, DataFromNewerKafka, pick_free
from proxy.errors import DataDirInUse, PortTaken
from tests.conftest import StartBroker
from tests.support.records import Outgoing, broker_answers, new_topic, read_to_end, write
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[2]
WITHIN_S = 180


@contextmanager
def _child(*command: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, *command], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def _first_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def _await_answer(address: str) -> None:
    wait_for(lambda: broker_answers(address), WITHIN_S, f"an answer from {address}")


def _processes_naming(folder: Path) -> list[str]:
    shown = subprocess.run(["/bin/ps", "axwwo", "args"], capture_output=True, text=True, check=True)
    return [line for line in shown.stdout.splitlines() if str(folder) in line]


def _stopped_cleanly(folder: Path) -> bool:
    return "unregistered" in DataFolder(folder).log_tail(3)[-1]


def test_committed_transactions_are_read_and_aborted_ones_are_not(kafka: str) -> None:
    topic = new_topic(kafka, "transactions")
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(WITHIN_S)

    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush(WITHIN_S)
    producer.abort_transaction(WITHIN_S)
    producer.begin_transaction()
    producer.produce(topic, b"committed")
    producer.commit_transaction(WITHIN_S)

    assert [record.value for record in read_to_end(kafka, topic, 1)] == [b"committed"]


def test_compaction_keeps_the_last_record_of_a_key(kafka: str) -> None:
    prompt = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "100",
        "min.compaction.lag.ms": "0",
    }
    topic = new_topic(kafka, "compacted", config=prompt)
    write(kafka, topic, [Outgoing(b"k", b"old"), Outgoing(b"k", b"new")])

    def only_the_last_is_left() -> bool:
        write(kafka, topic, [Outgoing(b"other", b"rolls the segment")])
        values = [record.value for record in read_to_end(kafka, topic) if record.key == b"k"]
        return values == [b"new"]

    wait_for(only_the_last_is_left, WITHIN_S, "compaction")


def test_headers_keys_and_nulls_arrive_as_they_were_written(kafka: str) -> None:
    topic = new_topic(kafka, "headers", partitions=2)
    headers = [("a", b"\x00\xff"), ("a", b""), ("b", None)]

    write(kafka, topic, [Outgoing(None, None, headers, partition=1)])

    (record,) = read_to_end(kafka, topic, 1)
    assert (record.partition, record.key, record.value) == (1, None, None)
    assert record.headers == headers


@pytest.mark.faults
@pytest.mark.parametrize("ended", ["stop", "kill"])
def test_restart_has_the_same_address_and_the_same_records(
    own_broker: StartBroker, ended: str
) -> None:
    broker = own_broker()
    address = broker.bootstrap_servers
    topic = new_topic(address, "kept")
    write(address, topic, [Outgoing(b"k", b"before")])

    broker.stop() if ended == "stop" else broker.kill()
    assert not broker_answers(address)
    broker.start()

    assert broker.bootstrap_servers == address
    write(address, topic, [Outgoing(b"k", b"after")])
    values = [record.value for record in read_to_end(address, topic, 2)]
    assert values == [b"before", b"after"]


def test_two_brokers_at_once_are_two_clusters(kafka: str, own_broker: StartBroker) -> None:
    address = own_broker().bootstrap_servers

    topic = new_topic(kafka, "mine")
    write(kafka, topic, [Outgoing(b"k", b"v")])

    other = new_topic(address, "other")
    assert address != kafka
    assert read_to_end(address, other) == []
    assert len(read_to_end(kafka, topic, 1)) == 1


def test_taken_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", pick_free("127.0.0.1"))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"Port {port} on 127.0.0.1 is already in use"):
            EmbeddedBroker(tmp_path, port=port).start()
    assert not (tmp_path / "broker.log").exists()


def test_data_folder_in_use_is_refused(own_broker: StartBroker, tmp_path: Path) -> None:
    own_broker("shared")
    with pytest.raises(DataDirInUse, match="is in use by another process"):
        own_broker("shared")


def test_data_of_a_newer_kafka_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kafka.version").write_text("99.0.0\n")
    with pytest.raises(DataFromNewerKafka, match=r"made by Kafka 99\.0\.0"):
        EmbeddedBroker(tmp_path).start()


def test_setting_kafka_refuses_shows_what_kafka_said(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match=r"num\.network\.threads"):
        EmbeddedBroker(tmp_path, overrides={"num.network.threads": "none"}).start()


@pytest.mark.faults
def test_killed_parent_leaves_no_broker_behind(tmp_path: Path) -> None:
    with _child("-m", "tests.support.orphan_broker", str(tmp_path)) as parent:
        _await_answer(_first_line(parent))
        assert len(_processes_naming(tmp_path)) == 3, "the parent, the watchdog and the JVM"
        parent.kill()

    wait_for(lambda: not _processes_naming(tmp_path), WITHIN_S, "the end of the orphaned broker")
    assert _stopped_cleanly(tmp_path)


def test_foreground_broker_says_when_it_is_ready_and_stops_on_sigterm(tmp_path: Path) -> None:
    with _child("-m", "proxy", "broker", "--port", "0", "--data-dir", str(tmp_path)) as child:
        ready = _first_line(child)
        assert ready.startswith("Kafka ready on 127.0.0.1:")
        _await_answer(ready.rpartition(" ")[2])
        child.send_signal(signal.SIGTERM)
        assert child.wait(WITHIN_S) == 0

    assert _processes_naming(tmp_path) == []
    assert _stopped_cleanly(tmp_path)


def test_broker_that_dies_by_itself_is_reported(own_broker: StartBroker) -> None:
    broker = own_broker()
    broker.signal(signal.SIGKILL)
    with pytest.raises(BrokerFailed, match="ended unexpectedly"):
        broker.wait()
