"""Requests beyond plain delivery, read as docs/guide.md says."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from proxy.protocol.body import delivery_of
from proxy.protocol.outcomes import REASONS, Rejection
from proxy.protocol.parsed import (
    Cancel,
    Decision,
    ParsedRecord,
    Prepare,
    RejectedHop,
    Scheduled,
)
from proxy.protocol.policy import Policy, RetryGroup
from proxy.protocol.proofs import HopAuthenticator, HopKey
from proxy.protocol.request_reader import NO_ID, RequestReader
from tests.support.simulation.world import DEAD_LETTERS, OUTCOMES, World

NOW_MS = 1_800_000_000_000
OFFSET = 7
POLICY = Policy(
    levels_ms=(10, 20, 30, 40, 50),
    retry_groups=(RetryGroup("own", (5, 6), 2),),
    deny=("secret-*", "retry.secret"),
    allow=("orders", "checks"),
)
HOP = {"timer-hop-from": "3", "timer-first-origin": "timer.ingress/0/1"}
LONGEST_ID = "x" * 256


def read(asked: Mapping[str, str | bytes | None], policy: Policy = POLICY) -> ParsedRecord:
    given = {"timer-topic": "orders", **asked}
    headers = [(n, v.encode() if isinstance(v, str) else v) for n, v in given.items() if v != ""]
    return RequestReader(policy).read(headers, b"key", b"value", NOW_MS, 0, OFFSET)


def scheduled(asked: Mapping[str, str | bytes | None], policy: Policy = POLICY) -> Scheduled:
    found = read(asked, policy)
    assert isinstance(found, Scheduled), found
    return found


def code(asked: Mapping[str, str | bytes | None]) -> str:
    found = read(asked)
    assert isinstance(found, Rejection), found
    assert found.code in REASONS
    return found.code


def retried(attempt: str, **more: str) -> dict[str, str | bytes | None]:
    named = {f"timer-{name}": value for name, value in more.items()}
    return {"timer-topic": "", "timer-retry-group": "g", "timer-attempt": attempt, **named}


def test_cancel_needs_nothing_else_and_heeds_nothing_else() -> None:
    junk = {"timer-topic": "no topic!", "timer-delay": "soon", "timer-id": "b", "timer-dely": "1"}
    assert read({"timer-cancel": "a"}) == Cancel(b"a")
    assert read({**junk, "timer-cancel": "a"}) == Cancel(b"a")


@pytest.mark.parametrize("name", ["timer-id", "timer-cancel"])
def test_ids_have_1_to_256_bytes_of_any_kind(name: str) -> None:
    for ident in (LONGEST_ID.encode(), b"\xff\x00", b" ", bytes(bytearray(NO_ID)), b"x-"[1:]):
        assert read({name: ident}).ident == ident  # type: ignore[union-attr]
    for bad in (b"", None, b"x" * 257, b"x" * 10_240):
        assert code({name: bad}) == "id-bad"


@pytest.mark.parametrize(("attempt", "delay_ms"), [("0", 30), ("1", 40), ("2", 50), ("15", 50)])
def test_retry_waits_at_level_three_plus_its_failures(attempt: str, delay_ms: int) -> None:
    found = scheduled(retried(attempt))
    assert (found.due_ms, found.entry[2]) == (NOW_MS + delay_ms, "retry.g")


def test_group_with_rules_of_its_own_follows_them() -> None:
    own = {"timer-topic": "", "timer-retry-group": "own"}
    assert scheduled({**own, "timer-attempt": "1"}).due_ms == NOW_MS + 6
    assert scheduled({**own, "timer-attempt": "2"}).entry[2] == "dlq.own"


@pytest.mark.parametrize("more", [{}, {"topic": "orders"}, {"delay": "1h"}, {"delay": "junk"}])
def test_record_that_failed_too_often_is_given_up_at_once(more: dict[str, str]) -> None:
    found = scheduled(retried("16", **more))
    assert (found.due_ms, found.entry[2]) == (NOW_MS, "dlq.g")


def test_given_up_record_that_is_tried_again_keeps_its_due() -> None:
    found = scheduled({**retried("16"), **HOP, "timer-deliver-at": "5"})
    assert found.due_ms == 5


def test_retry_topics_may_be_denied_and_old_policies_did_not_ask_whether_they_were_allowed() -> (
    None
):
    assert scheduled(retried("0")).entry[2] == "retry.g"
    denied = {"timer-topic": "", "timer-retry-group": "secret"}
    assert code({**denied, "timer-attempt": "0"}) == "target-refused"


@pytest.mark.parametrize("attempt", ["0", "16"])
def test_an_invented_group_is_refused_where_few_targets_are_allowed_with_both_remedies(
    attempt: str,
) -> None:
    policy = Policy(allow=("safe-*",), checks_groups=True)
    refused = read({**retried(attempt), "timer-retry-group": "pay"}, policy)
    assert isinstance(refused, Rejection)
    assert refused.code == "target-refused"
    assert refused.detail == (
        "the consumer group pay is not served: name it under the setting retry.groups, or let a "
        "pattern of targets.allow match retry.pay"
    )


@pytest.mark.parametrize("attempt", ["-1", "", "two", "1.5", "1" * 10, " 1", "٣"])
def test_attempt_that_is_no_whole_number_is_refused(attempt: str) -> None:
    assert code({"timer-retry-group": "g", "timer-attempt": attempt.encode()}) == "retry-bad"


@pytest.mark.parametrize("group", [b"", None])
def test_attempt_of_nobody_is_refused(group: bytes | None) -> None:
    assert code({"timer-attempt": "1"}) == "retry-bad"
    assert code({"timer-attempt": "1", "timer-retry-group": group}) == "retry-bad"


@pytest.mark.parametrize("group", ["a group!", "g" * 246, "é", b"\xff"])
def test_group_that_makes_no_topic_name_is_refused(group: str | bytes) -> None:
    for attempt in ("0", "16"):
        asked = {"timer-topic": "", "timer-retry-group": group, "timer-attempt": attempt}
        assert code(asked) == "target-illegal"


def test_prepare_says_when_and_how_often_it_is_asked_about() -> None:
    found = read({"timer-id": "t", "timer-transaction": "prepare", "timer-check-topic": "checks"})
    assert isinstance(found, Prepare)
    assert (found.check_topic, found.first_check_ms) == ("checks", NOW_MS + 6_000)
    assert (found.interval_ms, found.max_checks) == (30_000, 15)


def test_prepare_may_ask_for_its_own_immunity_up_to_the_longest_delay() -> None:
    prepare: dict[str, str | bytes | None] = {"timer-id": "t", "timer-transaction": "prepare"}
    own = read({**prepare, "timer-check-immunity": "1m"})
    longest = read({**prepare, "timer-check-immunity": "36500d"})
    assert isinstance(own, Prepare)
    assert isinstance(longest, Prepare)
    assert own.first_check_ms == NOW_MS + 60_000
    assert longest.first_check_ms == NOW_MS + POLICY.max_delay_ms
    assert code({**prepare, "timer-check-immunity": "junk"}) == "time-unreadable"


@pytest.mark.parametrize(
    ("topic", "why"), [("no topic!", "target-illegal"), ("secret-1", "target-refused")]
)
def test_check_topic_is_judged_like_a_target(topic: str, why: str) -> None:
    asked = {"timer-id": "t", "timer-transaction": "prepare", "timer-check-topic": topic}
    assert code({**asked}) == why


@pytest.mark.parametrize("what", ["commit", "rollback"])
def test_decisions_need_an_id_and_no_target(what: str) -> None:
    assert read({"timer-topic": "", "timer-id": "t", "timer-transaction": what}) == Decision(
        b"t", what, None
    )
    assert code({"timer-transaction": what}) == "id-bad"


@pytest.mark.parametrize("what", ["expire", "check", "Commit", b"\xff", None, b""])
def test_other_words_for_a_transaction_are_refused(what: str | bytes | None) -> None:
    assert code({"timer-id": "t", "timer-transaction": what}) == "transaction-bad"


def test_successor_goes_on_from_where_it_says() -> None:
    found = scheduled(
        {**HOP, "timer-id": "a", "timer-deliver-at": "5", "timer-hop-not-before": "99"}
    )
    assert (found.hop_from, found.ident, found.due_ms) == (3, b"a", 5)
    assert delivery_of(found.entry).wanted_ms == 99


def test_successor_that_the_policy_of_today_refuses_still_goes_on_from_there() -> None:
    found = read({**HOP, "timer-id": "a", "timer-topic": "secret-orders"})
    assert isinstance(found, RejectedHop)
    assert (found.rejection.code, found.ident, found.hop_from) == ("target-refused", b"a", 3)


@pytest.mark.parametrize(
    "forged",
    [
        {"timer-hop-from": "x"},
        {"timer-hop-from": "-1"},
        {"timer-hop-from": "3"},
        {**HOP, "timer-hop-from": str(OFFSET)},
        {**HOP, "timer-hop-from": "9999999"},
        {**HOP, "timer-hop-from": None},
        {"timer-hop-attempt": "1"},
        {"timer-hop-not-before": "1"},
        {**HOP, "timer-hop-attempt": "x"},
        {**HOP, "timer-hop-attempt": "9" * 5_000},
        {**HOP, "timer-hop-not-before": "soon"},
        {"timer-hop-from": "3", "timer-id": "t", "timer-transaction": "commit"},
    ],
)
def test_forged_hop_headers_are_refused(forged: dict[str, str | bytes | None]) -> None:
    assert code(forged) == "hop-bad"


SIGNED_BY = HopAuthenticator(HopKey(b"k" * 32), "topic-id")


def signed(*headers: tuple[str, bytes | None]) -> list[tuple[str, bytes | None]]:
    asked = [("timer-topic", b"orders"), ("timer-hop-from", b"3"), *headers]
    return SIGNED_BY.signed(0, b"key", b"value", [*asked, ("timer-first-origin", b"i/0/1")])


def read_by_mac(headers: list[tuple[str, bytes | None]]) -> ParsedRecord:
    return RequestReader(POLICY, SIGNED_BY).read(headers, b"key", b"value", NOW_MS, 0, OFFSET)


def test_successor_with_its_mac_goes_on() -> None:
    found = read_by_mac(signed(("timer-deliver-at", b"9" * 15)))
    assert isinstance(found, Scheduled)
    assert (found.hop_from, found.due_ms) == (3, 10**15 - 1)


@pytest.mark.parametrize(
    "forged",
    [
        signed()[:-1],
        [*signed(), ("trace", b"behind")],
        [*signed()[:-1], ("timer-hop-mac", b"0" * 32)],
        [("timer-hop-from", b"2"), *signed()[2:]],
        [("timer-transaction", b"expire"), ("timer-id", b"t"), ("timer-hop-from", b"3")],
        [("timer-topic", b"orders"), ("timer-hop-mac", b"0" * 32)],
    ],
)
def test_hop_that_the_proxy_did_not_write_is_refused(
    forged: list[tuple[str, bytes | None]],
) -> None:
    found = read_by_mac(forged)
    assert isinstance(found, Rejection)
    assert found.code == "hop-bad"


@pytest.mark.parametrize("timestamp_ms", [10**15, 2**63 - 1])
@pytest.mark.parametrize("asked", [{}, {"timer-delay": b"1"}, {"timer-deliver-at": b"5"}])
def test_timestamp_that_is_no_clocks_is_refused(timestamp_ms: int, asked: dict[str, bytes]) -> None:
    headers: list[tuple[str, bytes | None]] = [("timer-topic", b"orders"), *asked.items()]
    found = RequestReader(POLICY).read(headers, None, None, timestamp_ms, 0, OFFSET)
    assert isinstance(found, Rejection)
    assert found.code == "time-unreadable"
    assert str(timestamp_ms) in found.detail


def test_record_waits_no_longer_than_the_longest_delay_whatever_its_hop_says() -> None:
    found = scheduled({**HOP, "timer-hop-not-before": "9" * 15})
    assert delivery_of(found.entry).wanted_ms == NOW_MS + POLICY.max_delay_ms


@pytest.mark.parametrize("attempt", ["x", "9" * 5_000, "-1"])
def test_forged_attempt_stops_nobody_when_its_topic_is_missing(attempt: str) -> None:
    world = World()
    world.send({"timer-topic": "nowhere", "timer-hop-attempt": attempt})
    world.send({"timer-topic": "orders"})
    world.settle()
    assert world.origins() == ["timer.ingress/0/1"]
    (letter,) = world.kafka.read(DEAD_LETTERS)
    assert letter.header("timer-error") == b"hop-bad"
    (outcome,) = world.kafka.read(OUTCOMES)
    assert json.loads(outcome.value() or b"")["outcome"] == "dead-lettered"


def test_forged_keeper_of_the_ingress_key_changes_no_key() -> None:
    world = World()
    world.policy = Policy(levels_ms=(10,), retry_first_level=1)
    forged = {"timer-ingress-key": "forged"}
    world.send({**forged, "timer-topic": "orders", "timer-partition": "9"}, key=b"own")
    world.send({**forged, "timer-topic": "later", "timer-key": "asked"}, key=b"own")
    world.send({**forged, "timer-topic": "later"}, key=b"own")
    world.settle()
    world.kafka.topics["later"] = 1
    for _ in range(10):
        world.time.pass_ms(1_000)
        world.settle()
    (letter,) = world.kafka.read(DEAD_LETTERS)
    assert (letter.key(), letter.header("timer-ingress-key")) == (b"own", b"forged")
    assert [record.key() for record in world.delivered("later")] == [b"asked", b"own"]
