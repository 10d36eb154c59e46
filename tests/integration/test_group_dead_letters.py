"""`dead-letters --group` on a real broker and proxy: a group's letters are listed, shown and
replayed to that group only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_delay import Received, RetryConsumer
from tests.integration.dead_letter_operator import Operator
from tests.support.installation.installation import Installation
from tests.support.records import Outgoing, read_to_end, write
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 180


class Site:
    """An installation with consumers of one group, and an operator at its command line."""

    def __init__(self, installation: Installation) -> None:
        self.installation, self.bootstrap = installation, installation.bootstrap
        self.group, self.orders = installation.name, installation.target()
        proxy = installation.proxy(levels="50ms")
        proxy.start_ready()
        self.operator = Operator(self.bootstrap, settings_file=proxy.folder / "proxy.yaml")
        self.seen: list[Received] = []

    @contextmanager
    def consuming(self, **options: Any) -> Iterator[None]:
        config = {"bootstrap.servers": self.bootstrap}
        ingress = self.installation.ingress
        consumer = RetryConsumer(
            config, self.group, [self.orders], self._handle, ingress=ingress, **options
        )
        thread = threading.Thread(target=consumer.run)
        thread.start()
        try:
            yield
        finally:
            consumer.stop()
            thread.join(WITHIN_S)

    def _handle(self, record: Received) -> None:
        self.seen.append(record)
        if record.value != b"fine" and not any(name == "mended" for name, _ in record.headers):
            raise ValueError(f"no {record.value!r}")

    def give_up(self, *values: bytes) -> None:
        with self.consuming(give_up=[ValueError]):
            for number, value in enumerate(values, 1):
                write(self.bootstrap, self.orders, [Outgoing(value, value, [("trace", b"7")])])
                self.await_letters(number)

    def await_letters(self, count: int) -> None:
        wait_for(lambda: len(self.letters()) == count, WITHIN_S, "the letter")

    def letters(self) -> list[dict[str, Any]]:
        return self.operator.say("list", "--json", "--group", self.group).lines


@pytest.fixture
def site(kafka: str, tmp_path: Path) -> Iterator[Site]:
    installation = Installation(kafka, tmp_path)
    try:
        yield Site(installation)
    finally:
        installation.close()


def test_what_a_group_gave_up_is_listed_shown_and_replayed_to_that_group_once(site: Site) -> None:
    site.give_up(b"one", b"two")
    _, one = site.letters()
    assert (one["key"], one["reason"], one["target"]) == (
        "one",
        "ValueError: no b'one'",
        site.orders,
    )
    chosen = site.operator.say("list", "--json", "-g", site.group, "--reason", "*two*").lines
    assert [line["key"] for line in chosen] == ["two"]

    place = f"{one['partition']}/{one['offset']}"
    shown = site.operator.say("show", place, "--group", site.group)
    assert f"1 failures at {site.orders}/0/" in shown.out
    assert "trace: 7" in shown.out

    replay = ("replay", "--yes", "--json", "--group", site.group, "--set", "mended=yes")
    assert site.operator.say(*replay, place).lines[-1]["replayed"] == 1
    said = site.operator.say(*replay)
    assert said.lines[-1] == {"replayed": 1, "stayed": {"already-replayed": 1}, "stopped": False}
    assert said.code == 0
    site.seen.clear()
    with site.consuming():
        wait_for(lambda: len(site.seen) >= 2, WITHIN_S, "both to come again")
    assert {record.value for record in site.seen} == {b"one", b"two"}
    assert {record.attempt for record in site.seen} == {0}
    assert {record.read_from.topic for record in site.seen} == {f"retry.{site.group}"}
    assert {record.topic for record in site.seen} == {site.orders}
    assert len(read_to_end(site.bootstrap, site.orders)) == 2
    assert {line["replayed_as"] is None for line in site.letters()} == {False}


def test_a_replayed_record_that_fails_again_has_all_its_attempts_before_it_is_given_up(
    site: Site,
) -> None:
    site.give_up(b"one")
    replay = ("replay", "--yes", "--json", "--group", site.group)
    assert site.operator.say(*replay).lines[-1]["replayed"] == 1
    site.seen.clear()
    with site.consuming():
        site.await_letters(2)
    assert [record.attempt for record in site.seen] == list(range(17))
    first = [line for line in site.letters() if line["replayed_as"]]
    assert len(first) == 1


def test_a_dry_run_says_where_a_groups_letters_would_go(site: Site) -> None:
    site.give_up(b"one")
    said = site.operator.say("replay", "--dry-run", "--group", site.group)
    assert said.code == 0
    assert f"1 to retry.{site.group}, at once" in said.out
    later = site.operator.say(
        "replay", "--dry-run", "--group", site.group, "--set", "timer-delay=1h"
    )
    assert f"1 to retry.{site.group}, at " in later.out
    assert "at once" not in later.out


def test_a_group_without_dead_letters_and_a_name_that_no_group_has_are_sentences(
    kafka: str,
) -> None:
    operator = Operator(kafka)
    missing = operator.say("list", "--group", operator.mark)
    assert missing.code == 1
    assert f"dlq.{operator.mark} does not exist" in missing.err
    wrong = operator.say("list", "--group", "a b")
    assert wrong.code == 2
    assert "cannot have a dead-letter topic" in wrong.err
