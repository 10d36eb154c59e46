"""Minimal rights, as in docs/operations/topics.md: sufficient, and each one needed."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]

from kafka_delay import ClientError, RetryConsumer
from tests.integration.security.commands import run_check, run_command
from tests.support.installation.admin_client import call
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.installation.rights import Right, documented_rights, grant, revoke
from tests.support.installation.secured_broker import SCRAM
from tests.support.installation.secured_site import USER, SecuredSite, secured_site
from tests.support.installation.story import Story
from tests.support.oracle.asked import Rules, levels_ms
from tests.support.quiet_clients import admin_client
from tests.support.records import new_topic
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

PRINCIPAL = f"User:{USER}"
RIGHTS = documented_rights("operations/topics.md", "Rights of the proxy's user")
LEVELS = "10ms 20ms 30ms 40ms 50ms"
IMMUNITY_MS, INTERVAL_MS, CHECKS = 300, 400, 2
ROLL_AFTER_MS = 1_500
SETTINGS = {
    "levels": LEVELS,
    "retry": {"max_attempts": 3},
    "transactions": {
        "immunity": f"{IMMUNITY_MS}ms",
        "check_interval": f"{INTERVAL_MS}ms",
        "max_checks": CHECKS,
    },
}
RULES = Rules(
    levels_ms=levels_ms(LEVELS),
    max_attempts=3,
    immunity_ms=IMMUNITY_MS,
    check_interval_ms=INTERVAL_MS,
    max_checks=CHECKS,
)
WITHIN_S = 180
OWN = {"timer.ingress", "timer.settings", "timer.dead-letters", "timer.outcomes"}
"""Topics without which `run` does not start."""
FOR_TARGETS_ALONE = [
    right
    for right in RIGHTS
    if right.name == "orders" or (right.operation == "DescribeConfigs" and right.is_prefix)
]
NOT_NEEDED_AT_START = {
    Right("Read", ResourceType.TOPIC, "timer.outcomes"),
    *(Right("DescribeConfigs", ResourceType.TOPIC, topic) for topic in OWN),
}
TAKEN_FROM_A_RUNNING_PROXY = (
    Right("Read", ResourceType.TOPIC, "timer.ingress"),
    Right("Write", ResourceType.TOPIC, "timer.ingress"),
    Right("Write", ResourceType.TOPIC, "timer.dead-letters"),
    Right("Write", ResourceType.TOPIC, "timer.outcomes"),
    Right("Read", ResourceType.GROUP, "delay-proxy"),
    Right("Write", ResourceType.TRANSACTIONAL_ID, "delay-proxy-", is_prefix=True),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSite]:
    with secured_site(tmp_path_factory.mktemp("rights"), open_to_all=False) as made:
        yield made


@dataclass(frozen=True, slots=True)
class Granted:
    """An installation whose proxy has the page's rights, with this installation's names."""

    installation: Installation
    group: str

    def named(self, right: Right) -> Right:
        of = self.installation
        names = {
            "timer.ingress": of.ingress,
            "timer.settings": f"{of.name}.settings",
            "timer.dead-letters": of.dead_letters,
            "timer.outcomes": of.outcomes,
            "timer.changes": f"{of.name}.changes",
            "orders": f"{of.name}.orders",
            "delay-proxy": f"{of.name}.proxy",
            "delay-proxy-": f"{of.name}.proxy-",
            "retry.": f"retry.{self.group}",
            "dlq.": f"dlq.{self.group}",
        }
        return right._replace(name=names[right.name])

    @contextmanager
    def without(self, right: Right) -> Iterator[Right]:
        named = self.named(right)
        revoke(self.installation.bootstrap, PRINCIPAL, named)
        yield named
        grant(self.installation.bootstrap, PRINCIPAL, named)


@pytest.fixture
def granted(site: SecuredSite, tmp_path: Path) -> Iterator[Granted]:
    installation = Installation(site.broker.bootstrap, tmp_path, partitions=1)
    for topic in (installation.dead_letters, installation.outcomes):
        installation.named_target(topic)
        installation.targets.remove(topic)
    installation._create(f"{installation.name}.settings", 1, {"cleanup.policy": "compact"})
    installation._create(f"{installation.name}.changes", 1, {})
    made = Granted(installation, f"g{uuid.uuid4().hex[:6]}")
    grant(installation.bootstrap, PRINCIPAL, *map(made.named, RIGHTS))
    yield made
    installation.close()


def _proxy(granted: Granted, site: SecuredSite, **more: object) -> Story:
    settings = {**SETTINGS, "roll_after": f"{ROLL_AFTER_MS}ms", **more}
    return Story(granted.installation, RULES, kafka=site.kafka(SCRAM), **settings)


def test_every_feature_works_with_the_rights_of_the_page(
    granted: Granted, site: SecuredSite
) -> None:
    installation = granted.installation
    told = _proxy(granted, site)
    checked = run_check(told.proxy)
    assert (checked.stops, "DescribeConfigs" in checked.out) == ([], False)
    told.proxy.start_ready()
    orders = installation.target()
    checks = new_topic(installation.bootstrap, f"{installation.name}.orders-checks")
    installation.check_topics.append(checks)
    told.tell("delivered", topic=orders, delay="50ms")
    told.tell("replaced", topic=orders, id="r", delay="1h")
    told.tell("its successor", topic=orders, id="r", delay="10ms")
    told.tell("cancelled", topic=orders, id="c", delay="1h")
    told.tell("its cancel", cancel="c")
    told.tell("rolled", topic=orders, delay=f"{2 * ROLL_AFTER_MS}ms")
    told.tell("unreadable", topic=orders, delay="soon")
    told.tell("target unknown", topic=f"{installation.name}.orders-nobody-made")
    told.tell("sent back", retry_group=granted.group, attempt="1")
    told.tell("sent back too often", retry_group=granted.group, attempt="3")
    half = {"topic": orders, "check_topic": checks, "transaction": "prepare"}
    for name in ("committed", "rolled back", "forgotten"):
        told.tell(name, **half, id=name)
    told.tell("commit", id="committed", transaction="commit")
    told.tell("rollback", id="rolled back", transaction="rollback")
    told.tell("waits", topic=orders, id="w", delay="1h")
    told.send()
    _await_topic(installation, f"dlq.{granted.group}")
    _await_topic(installation, f"retry.{granted.group}")
    installation.targets += [f"retry.{granted.group}", f"dlq.{granted.group}"]
    _operate(told.proxy, orders)
    told.end()
    assert told.said("rolled")[0] == "rolled"
    assert told.said("replaced")[0] == "replaced"
    assert told.said("forgotten")[-1] == "expired"
    assert told.reasons("unreadable") == ["time-unreadable"]
    assert told.reasons("target unknown") == ["target-unknown"]
    assert told.topics("sent back") == [f"retry.{granted.group}"]
    assert told.topics("sent back too often") == [f"dlq.{granted.group}"]
    assert "right is missing" not in told.proxy.log


def _await_topic(installation: Installation, topic: str) -> None:
    admin = admin_client(installation.bootstrap)
    wait_for(lambda: topic in admin.list_topics(timeout=WITHIN_S).topics, WITHIN_S, topic)


def _operate(proxy: ProxyProcess, topic: str) -> None:
    assert call(proxy, "PUT", f"/pauses/{topic}")[0] == 200
    assert call(proxy, "DELETE", f"/pauses/{topic}")[0] == 200
    status, cancelled = call(proxy, "POST", "/cancellations?wait=30s", {"id": "w", "key": "key"})
    assert (status, cancelled["outcome"]) == (200, "applied")


def test_check_names_each_right_that_is_missing(granted: Granted, site: SecuredSite) -> None:
    """Missing rights on targets show only when a record needs them."""
    story = _proxy(granted, site, retry={"groups": {granted.group: {}}})
    unnamed = []
    for right in RIGHTS:
        if right in FOR_TARGETS_ALONE:
            continue
        with granted.without(right) as missing:
            remedies = [finding["remedy"] for finding in run_check(story.proxy).findings]
        if not any(_names(remedy, missing) for remedy in remedies):
            unnamed.append((missing, remedies))
    assert unnamed == []


def test_run_does_not_start_without_a_right_on_its_own_topics(
    granted: Granted, site: SecuredSite
) -> None:
    story = _proxy(granted, site)
    unnamed = []
    for right in RIGHTS:
        if right.name not in OWN or right in NOT_NEEDED_AT_START:
            continue
        with granted.without(right) as missing:
            said = run_command(story.proxy, "run")
        if said.code != 1 or not _names(said.err, missing):
            unnamed.append((missing, said))
    assert unnamed == []


def test_a_running_proxy_names_a_right_taken_away_and_goes_on_once_it_is_back(
    granted: Granted, site: SecuredSite
) -> None:
    """Three records need all of the rights: one delivered, one undeliverable, one retried."""
    installation = granted.installation
    told, orders = _proxy(granted, site), installation.target()
    told.proxy.start_ready()
    for right in TAKEN_FROM_A_RUNNING_PROXY:
        with granted.without(right) as missing:
            told.tell("any", topic=orders)
            told.tell("bad", topic=orders, delay="soon")
            told.tell("no target", topic=f"{installation.name}.orders-nobody-made")
            told.send()
            _await_named(told.proxy, missing)
        told.proxy.wait_ready()
    told.end()


def test_a_target_that_may_not_be_written_to_is_named_in_its_dead_letters(
    granted: Granted, site: SecuredSite
) -> None:
    installation = granted.installation
    told, orders = _proxy(granted, site), installation.target()
    told.proxy.start_ready()
    with granted.without(Right("Write", ResourceType.TOPIC, "orders", is_prefix=True)):
        told.tell("refused", topic=orders)
        told.send()
        installation.await_ends(3)
    create = Right("Create", ResourceType.TOPIC, "retry.", is_prefix=True)
    with granted.without(create) as missing:
        told.tell("sent back", retry_group=granted.group, attempt="1")
        told.send()
        installation.await_ends(6)
    told.end()
    assert told.reasons("refused") == ["not-authorised"]
    assert f"({orders}): grant it Write" in _detail(told, "refused")
    assert told.reasons("sent back") == ["target-unknown"]
    assert _names(_detail(told, "sent back"), missing._replace(name=f"retry.{granted.group}"))


def test_while_records_wait_for_a_right_log_listing_and_metric_say_so(
    granted: Granted, site: SecuredSite
) -> None:
    told, orders = _proxy(granted, site, levels="200s 300s 400s"), granted.installation.target()
    told.proxy.start_ready()
    with granted.without(Right("Write", ResourceType.TOPIC, "orders", is_prefix=True)):
        told.tell("refused", topic=orders)
        told.send()

        def reasons() -> list[str | None]:
            found = call(told.proxy, "GET", "/pending/records")[1]["records"]
            return [one["reason"] for one in found]

        def is_put_off() -> bool:
            return [(reason or "").partition(": ")[0] for reason in reasons()] == ["not-authorised"]

        wait_for(is_put_off, WITHIN_S, "the record to be put off for the missing right")
    (line,) = [line for line in told.proxy.log.splitlines() if "rejects its records" in line]
    assert (f'"target": "{orders}"' in line, '"reason": "not-authorised"' in line) == (True, True)
    series = f'delay_proxy_target_refused_seconds{{reason="not-authorised",target="{orders}"}}'

    def late_s() -> float:
        metrics = told.proxy.get("/metrics")[1].splitlines()
        return sum(float(one.split()[-1]) for one in metrics if _has_labels(one, series))

    wait_for(lambda: late_s() > 0, WITHIN_S, "the metric to say since when")


def _has_labels(line: str, series: str) -> bool:
    name, _, labels = series.rstrip("}").partition("{")
    return line.startswith(f"{name}{{") and all(label in line for label in labels.split(","))


def test_a_retry_consumer_names_the_right_that_it_lacks(
    granted: Granted, site: SecuredSite
) -> None:
    orders, connection = granted.installation.target(), site.connection(SCRAM)
    consumer = RetryConsumer(connection, granted.group, [orders], lambda _: None)
    with pytest.raises(ClientError, match="Grant it: kafka-acls.sh ") as refused:
        consumer.run()
    assert any(
        _names(str(refused.value), right) for right in _rights_of_a_consumer(orders, granted)
    )


def _rights_of_a_consumer(topic: str, granted: Granted) -> list[Right]:
    return [
        Right("Read", ResourceType.GROUP, granted.group),
        Right("Read", ResourceType.TOPIC, topic),
    ]


def test_the_admin_api_names_a_right_that_it_lacks(granted: Granted, site: SecuredSite) -> None:
    told = _proxy(granted, site)
    told.proxy.start_ready()
    for operation, topic in (("Write", "timer.ingress"), ("Read", "timer.outcomes")):
        with granted.without(Right(operation, ResourceType.TOPIC, topic)) as missing:
            status, said = call(told.proxy, "POST", "/cancellations?wait=20s", {"id": "nobody"})
        assert status == 503
        assert _names(said["detail"], missing)


def _names(text: str, right: Right) -> bool:
    lines = [line for line in text.splitlines() if f" --operation {right.operation}" in line]
    kind = right.kind.name.lower().replace("_", "-")
    return any(re.search(rf" --{kind} {re.escape(right.name)}(?![\w-])", line) for line in lines)


def _await_named(proxy: ProxyProcess, right: Right) -> None:
    def is_named() -> bool:
        named = [line for line in proxy.log.splitlines() if "a right is missing" in line]
        return any(_names(line, right) for line in named)

    wait_for(is_named, WITHIN_S, f"{right} to be named")


def _detail(told: Story, name: str) -> str:
    (letter,) = told.letters(name)
    return (letter.header("timer-error-detail") or b"").decode()
