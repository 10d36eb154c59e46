"""The rights that `rights` prints for clients are enough on a real broker, and each is needed."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_delay import (
    ClientError,
    DelayProducer,
    HalfMessage,
    Received,
    RetryConsumer,
    State,
    TopicsMissing,
    TransactionalDelayProducer,
)
from tests.integration.security.commands import run_command
from tests.support.installation.kafka_acls import understood
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.installation.rights import Right, grant, revoke
from tests.support.installation.secured_broker import SCRAM
from tests.support.installation.secured_site import SecuredSite, secured_site
from tests.support.records import Outgoing, has_topic, new_topic, read_to_end, write
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

USER, PASSWORD = "a-client", "a-password-of-a-client"
WITHIN_S, REFUSED_WITHIN_S = 180.0, 15.0
Try = Callable[[float], bool]
"""Use the client for at most so many seconds. Return whether it worked."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSite]:
    with secured_site(tmp_path_factory.mktemp("rights"), open_to_all=False) as made:
        made.broker.add_user(USER, PASSWORD)
        yield made


class World:
    """A user of the broker, its topics, and `rights` for it."""

    def __init__(self, site: SecuredSite, folder: Path) -> None:
        self.bootstrap = site.broker.bootstrap
        self.connection = site.connection(SCRAM, sasl_username=USER, sasl_password=PASSWORD)
        self.ingress = new_topic(self.bootstrap, "ingress", 1)
        self.orders = new_topic(self.bootstrap, "orders", 1)
        self.outcomes = new_topic(self.bootstrap, "outcomes", 1)
        topics = {"ingress": self.ingress, "outcomes": self.outcomes}
        settings = {"kafka": self.connection, "topics": topics}
        self.person = ProxyProcess(folder, settings)

    def printed(self, *options: str) -> list[Right]:
        said = run_command(self.person, "rights", *options)
        assert said.code == 0, said.err
        found = []
        for line in said.out.splitlines():
            program, *words = shlex.split(line)
            user, rights = understood(words)
            assert (program, user) == ("kafka-acls.sh", f"User:{USER}")
            found += rights
        return found

    def hold(self, rights: list[Right], tried: Try) -> None:
        """Check that these rights are enough, and that each is needed."""
        grant(self.bootstrap, f"User:{USER}", *rights)
        assert tried(WITHIN_S)
        for right in rights:
            revoke(self.bootstrap, f"User:{USER}", right)
            assert not tried(REFUSED_WITHIN_S), f"{right} is not needed"
            grant(self.bootstrap, f"User:{USER}", right)


@pytest.fixture
def world(site: SecuredSite, tmp_path: Path) -> World:
    return World(site, tmp_path)


def test_the_rights_of_a_producer(world: World) -> None:
    def tried(limit_s: float) -> bool:
        try:
            with DelayProducer(world.connection, ingress=world.ingress) as producer:
                producer.send(world.orders, b"v", delay="1s").result(limit_s)
        except (ClientError, TimeoutError):
            return False
        return True

    world.hold(world.printed("--for", "producer"), tried)


def test_the_rights_of_a_retry_consumer(world: World) -> None:
    """A record is handled, and one that failed is written to the ingress, and read as a retry."""
    retries = new_topic(world.bootstrap, "retry.group", 1)
    group = retries.removeprefix("retry.")

    def tried(limit_s: float) -> bool:
        before = len(read_to_end(world.bootstrap, world.ingress, 0))
        handled: set[str] = set()

        def handler(record: Received) -> None:
            handled.add(record.read_from.topic)
            raise ValueError("to be tried again")

        write(world.bootstrap, world.orders, [Outgoing(b"k", b"v")])
        write(world.bootstrap, retries, [Outgoing(b"k", b"v")])
        consumer = RetryConsumer(
            world.connection, group, [world.orders], handler, ingress=world.ingress
        )
        ended: list[ClientError] = []

        def run() -> None:
            try:
                consumer.run()
            except ClientError as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()

        def is_done() -> bool:
            asked = len(read_to_end(world.bootstrap, world.ingress, 0)) - before
            return bool(ended) or (handled == {world.orders, retries} and asked >= 2)

        try:
            wait_for(is_done, limit_s, "both records to be handled and asked for again")
        except AssertionError:
            return False
        finally:
            consumer.stop()
            thread.join(WITHIN_S)
        return not ended

    words = ("--for", "retry-consumer", "--topic", world.orders, "--group", group)
    rights = world.printed(*words)
    world.hold([right for right in rights if right.operation != "Create"], tried)


def test_the_rights_of_a_retry_consumer_whose_topic_is_missing(world: World) -> None:
    group = new_topic(world.bootstrap, "group", 1)
    words = ("--for", "retry-consumer", "--topic", world.orders, "--group", group)
    rights = world.printed(*words)
    (create,) = [right for right in rights if right.operation == "Create"]

    def consumer() -> RetryConsumer:
        return RetryConsumer(world.connection, group, [world.orders], print, ingress=world.ingress)

    grant(world.bootstrap, f"User:{USER}", *(right for right in rights if right != create))
    with pytest.raises(TopicsMissing, match="Create"):
        consumer().run()
    grant(world.bootstrap, f"User:{USER}", create)
    made = consumer()
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        wait_for(lambda: has_topic(world.bootstrap, f"retry.{group}"), WITHIN_S, "the topic")
    finally:
        made.stop()
        thread.join(WITHIN_S)


def test_the_proxys_rights_are_enough_to_wait_for_the_answer_to_a_cancel(world: World) -> None:
    grant(world.bootstrap, f"User:{USER}", *world.printed("--topic", world.orders))
    said = run_command(world.person, "cancel", "nobody", "--wait", "5s")
    assert (said.code, said.err) == (1, "")
    assert f"no answer to {world.ingress}/0/0 within 5 s" in said.out


class Listener:
    """Listener that rolls everything back, and notes the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def check(self, half: HalfMessage) -> State:
        self.asked.append(half.id)
        return State.ROLLBACK


def test_the_rights_of_a_producer_of_half_messages(world: World) -> None:
    checks = new_topic(world.bootstrap, "checks", 1)
    asked = [("timer-transaction", b"check"), ("timer-id", b"7"), ("timer-check", b"1")]

    def tried(limit_s: float) -> bool:
        listener = Listener()
        write(world.bootstrap, checks, [Outgoing(b"7", b"v", asked)])
        try:
            with TransactionalDelayProducer(
                world.connection, listener, checks, ingress=world.ingress
            ) as producer:
                sent = producer.send_in_transaction(
                    world.orders, b"v", local_transaction=lambda _: State.COMMIT
                )
                assert sent.decision is not None
                sent.decision.result(limit_s)
                wait_for(lambda: bool(listener.asked), limit_s, "a check-back to be answered")
        except (ClientError, TimeoutError, AssertionError):
            return False
        return True

    world.hold(world.printed("--for", "half-messages", "--topic", checks), tried)


def test_the_rights_of_watch(world: World) -> None:
    write(world.bootstrap, world.orders, [Outgoing(b"k", b"v")])

    def tried(limit_s: float) -> bool:
        words = ("--from-beginning", "--count", "1", "--timeout", str(limit_s))
        said = run_command(world.person, "watch", world.orders, *words, "--json")
        return said.code == 0 and world.orders in said.out

    world.hold(world.printed("--for", "watch", "--topic", world.orders), tried)
