"""Replay decisions agree with the proxy's later judgement."""

from collections.abc import Container
from typing import Any

from proxy.dead_letters.letter import Letter, Place
from proxy.dead_letters.replay_plan import (
    ALREADY,
    GONE,
    NOT_OURS,
    Edits,
    NotReplayed,
    Original,
    Replayable,
    ReplayDecision,
    ReplayPlanner,
)
from proxy.protocol.outcomes import Rejection
from proxy.protocol.policy import Policy
from proxy.protocol.request_reader import RequestReader
from tests.support.dead_letters import ORIGIN, a_letter, letter_headers
from tests.support.records import Headers

NOW_MS = 1_800_000_000_000
TO_ORDERS = Edits({"timer-topic": b"orders"})


def judge(letter: Letter, edits: Edits = TO_ORDERS, **given: Any) -> ReplayDecision:
    """Decide under a policy that denies secret-*, with the given broker answers."""
    original: Original | None = given.get("original")
    refusal: Rejection | None = given.get("refusal")
    replayed: Container[Place] = given.get("replayed", frozenset())
    planner = ReplayPlanner(
        RequestReader(Policy(deny=("secret-*",))),
        edits,
        replayed,
        lambda _: original,
        lambda _topic, _partition: refusal,
        "timer.ingress",
        given.get("partitions", 4),
    )
    return planner.decide(letter, NOW_MS)


def staying(decision: ReplayDecision) -> tuple[str, str]:
    assert isinstance(decision, NotReplayed), decision
    return decision.kind, decision.detail


def going(decision: ReplayDecision) -> Replayable:
    assert isinstance(decision, Replayable), decision
    return decision


def test_mended_letter_goes_to_its_target_with_what_it_was() -> None:
    delay: Headers = [("timer-delay", b"5s"), ("trace", b"7")]
    goes = going(judge(a_letter(headers=letter_headers(more=delay))))
    assert (goes.target, goes.due_ms, goes.value) == ("orders", NOW_MS + 5_000, b"value")
    assert goes.headers == [
        ("timer-topic", b"orders"),
        *delay,
        ("timer-first-origin", ORIGIN.encode()),
    ]


def test_letter_that_would_be_rejected_again_stays_and_says_why() -> None:
    kind, detail = staying(judge(a_letter(), Edits()))
    assert kind == "target-refused"
    assert "secret-orders is denied" in detail


def test_edit_that_is_no_legal_request_is_told_before_anything_is_sent() -> None:
    edits = Edits({"timer-topic": b"orders", "timer-dealy": b"5s"})
    kind, detail = staying(judge(a_letter(), edits))
    assert kind == "header-unknown"
    assert "did you mean timer-delay?" in detail


def test_letter_that_the_broker_would_refuse_now_stays() -> None:
    refusal = Rejection("target-unknown", "the topic orders does not exist")
    assert staying(judge(a_letter(), refusal=refusal))[0] == "target-unknown"


def test_strangers_record_is_never_replayed() -> None:
    stranger = a_letter(headers=[("timer-topic", b"orders")])
    assert staying(judge(stranger))[0] == NOT_OURS


def test_replayed_letter_stays() -> None:
    assert staying(judge(a_letter(17), replayed={Place(0, 17)}))[0] == ALREADY


def test_letter_goes_back_to_the_ingress_partition_it_came_from() -> None:
    """Ids and cancels have a meaning only within their own partition."""
    assert going(judge(a_letter(), partitions=2)).partition == 1
    assert going(judge(a_letter(), partitions=1)).partition == -1
    elsewhere = letter_headers(origin="old.ingress/1/7")
    assert going(judge(a_letter(headers=elsewhere))).partition == -1


def test_value_too_large_for_the_dead_letter_topic_comes_from_the_ingress() -> None:
    own: Headers = [("timer-topic", b"secret-orders"), ("trace", b"7")]
    letter = a_letter(headers=letter_headers(more=[("trace", b"7")]), value=None)
    goes = going(judge(letter, original=(b"key", b"huge", own)))
    assert goes.value == b"huge"
    assert goes.size_bytes == len(b"key") + len(b"huge")


def test_value_that_was_null_stays_null() -> None:
    own: Headers = [("timer-topic", b"secret-orders")]
    assert going(judge(a_letter(value=None), original=(b"key", None, own))).value is None


def test_letter_without_a_value_whose_original_is_gone_stays() -> None:
    kind, detail = staying(judge(a_letter(value=None)))
    assert kind == GONE
    assert ORIGIN in detail
    assert "its producer must send it again" in detail


def test_another_record_at_the_origin_is_not_taken_for_the_original() -> None:
    own: Headers = [("timer-topic", b"secret-orders")]
    assert staying(judge(a_letter(value=None), original=(b"other", b"huge", own)))[0] == GONE
    others: Headers = [("timer-topic", b"orders")]
    assert staying(judge(a_letter(value=None), original=(b"key", b"huge", others)))[0] == GONE


def test_original_that_was_itself_sent_in_again_is_known_by_its_own_headers() -> None:
    """Its stamps of earlier hops may differ from the letter's stamps."""
    own: Headers = [("timer-topic", b"secret-orders"), ("timer-origin", b"x/0/1")]
    assert going(judge(a_letter(value=None), original=(b"key", b"huge", own))).value == b"huge"


def test_letter_with_a_reason_of_an_older_version_is_replayed() -> None:
    letter = a_letter(headers=letter_headers("too-many", "orders"))
    goes = going(judge(letter, Edits()))
    assert (goes.target, goes.value) == ("orders", b"value")
