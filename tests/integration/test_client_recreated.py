"""Topics deleted and recreated, or truncated, while a retry consumer reads them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.cimpl import NewTopic

from kafka_delay import Received, RetryLater
from proxy.embedded import EmbeddedBroker
from tests.conftest import StartBroker
from tests.integration.retry_world import WITHIN_S, World, at_work
from tests.support.quiet_clients import admin_client
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

OLD = 20
PATIENT = {"session.timeout.ms": 300_000, "max.poll.interval.ms": 300_000}
"""The member stays in its group while the broker restarts."""
ANEW = "the topic was deleted and created again"


class Handler:
    """Handler whose first old record does not end before `may_go`: it hangs or is retried."""

    def __init__(self, *, is_orderly: bool) -> None:
        self.may_go = threading.Event()
        self.handled: list[bytes | None] = []
        self._is_orderly = is_orderly

    def __call__(self, record: Received) -> None:
        if record.value == b"old 0" and self._is_orderly:
            raise RetryLater("1h")
        if record.value == b"old 0":
            self.may_go.wait(WITHIN_S)
        self.handled.append(record.value)

    def has(self, kind: str, count: int) -> bool:
        return {b"%s %d" % (kind.encode(), n) for n in range(count)} <= set(self.handled)


@pytest.fixture(params=[False, True], ids=["hangs", "waits"])
def handler(request: pytest.FixtureRequest) -> Iterator[Handler]:
    made = Handler(is_orderly=request.param)
    yield made
    made.may_go.set()


def options(handler: Handler) -> dict[str, Any]:
    return {"orderly": True} if handler._is_orderly else {"parallel": 4}


def write(world: World, kind: str, count: int) -> None:
    values = [b"%s %d" % (kind.encode(), n) for n in range(count)]
    world.write(*(Outgoing(value, value, partition=0) for value in values))


def make_anew(world: World) -> None:
    admin = admin_client(world.bootstrap)
    admin.delete_topics([world.orders])[world.orders].result(WITHIN_S)

    def is_made() -> bool:
        try:
            admin.create_topics([NewTopic(world.orders, 4, 1)])[world.orders].result(WITHIN_S)
        except KafkaException:
            return False
        return True

    wait_for(is_made, WITHIN_S, "the topic anew")


@pytest.mark.parametrize("count", [OLD // 2, OLD, 3 * OLD], ids=["shorter", "as long", "longer"])
def test_of_a_topic_that_is_made_anew_all_records_are_handled_and_no_old_offset_is_committed(
    kafka: str, handler: Handler, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The client library may report an offset out of range or continue silently."""
    world = World(kafka)
    write(world, "old", OLD)
    with at_work(world, handler, **options(handler)):
        wait_for(lambda: len(set(handler.handled)) == OLD - 1, WITHIN_S, "the old records")
        make_anew(world)
        write(world, "new", count)
        wait_for(lambda: handler.has("new", count), WITHIN_S, "the new records")
        wait_for(lambda: world.committed(world.orders) == count, WITHIN_S, "the offsets")
    assert world.committed(world.orders) == count
    assert f"{world.orders}/0: {ANEW}. It is read again from offset 0" in caplog.text


def test_a_topic_that_is_deleted_for_good_ends_nothing(kafka: str) -> None:
    world, handler = World(kafka), Handler(is_orderly=False)
    write(world, "old", OLD)
    with at_work(world, handler, parallel=4):
        wait_for(lambda: len(set(handler.handled)) == OLD - 1, WITHIN_S, "the old records")
        admin = admin_client(kafka)
        admin.delete_topics([world.orders])[world.orders].result(WITHIN_S)
        handler.may_go.set()
        world.write_retry(b"another")
        wait_for(lambda: b"another" in handler.handled, WITHIN_S, "what comes of the other topic")
        wait_for(lambda: world.retries_committed() == 1, WITHIN_S, "its offset")


def cut_off(broker: EmbeddedBroker, topic: str, folder: Path) -> None:
    """Delete all records of the partition, as an unclean election may."""
    broker.stop()
    (log,) = folder.rglob(f"{topic}-0")
    shutil.rmtree(log)
    broker.start()


def test_of_a_log_that_was_cut_off_and_has_grown_again_all_new_records_are_handled(
    own_broker: StartBroker, tmp_path: Path, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    broker = own_broker()
    world = World(broker.bootstrap_servers)
    write(world, "old", OLD)
    with at_work(world, handler, config=PATIENT, **options(handler)):
        wait_for(lambda: len(set(handler.handled)) == OLD - 1, WITHIN_S, "the old records")
        cut_off(broker, world.orders, tmp_path)
        write(world, "new", OLD // 2)
        wait_for(lambda: handler.has("new", OLD // 2), WITHIN_S, "the new records")
        wait_for(lambda: world.committed(world.orders) == OLD // 2, WITHIN_S, "the offsets")
    assert f"{world.orders}/0: the log was cut off" in caplog.text
