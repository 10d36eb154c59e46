"""`send` writes the protocol's headers, and refuses impossible requests at once."""

import pytest
import typer

from proxy.cli.send import Asked, ById, commit, expected_end, rollback
from proxy.config.settings import Settings
from proxy.kafka.control import Request
from proxy.protocol.body import Headers

NOW_MS = 1_000_000


@pytest.mark.parametrize(
    ("asked", "header"),
    [
        (Asked(topic="orders", delay="10s"), ("timer-delay", b"10s")),
        (
            Asked(topic="orders", deliver_at="2026-01-01T09:00:00Z"),
            ("timer-deliver-at", b"2026-01-01T09:00:00Z"),
        ),
        (Asked(topic="orders", level=3), ("timer-level", b"3")),
        (Asked(topic="orders", level=0), ("timer-level", b"0")),
    ],
)
def test_a_time_becomes_its_header(asked: Asked, header: tuple[str, bytes]) -> None:
    assert asked.record().headers == [("timer-topic", b"orders"), header]


def test_without_a_time_only_the_target_is_named() -> None:
    assert Asked(topic="orders").record().headers == [("timer-topic", b"orders")]


def test_two_times_are_refused() -> None:
    with pytest.raises(typer.BadParameter, match="give only one of"):
        Asked(topic="orders", delay="10s", level=3).record()


def test_a_bare_number_is_refused_with_both_units() -> None:
    with pytest.raises(typer.BadParameter, match="30 has no unit: write 30s for seconds, or 30ms"):
        Asked(topic="orders", delay="30").record()
    assert Asked(topic="orders", delay="0").record().headers[1] == ("timer-delay", b"0")


@pytest.mark.parametrize(
    "asked", [Asked(topic="t", delay="soon"), Asked(topic="t", deliver_at="tomorrow")]
)
def test_an_unreadable_time_is_refused_before_anything_is_sent(asked: Asked) -> None:
    with pytest.raises(typer.BadParameter, match="is not a"):
        asked.record()


def test_headers_are_split_at_the_first_equals_sign() -> None:
    headers = Asked(topic="orders", header=["a=b=c", "empty="]).record().headers
    assert headers[1:] == [("a", b"b=c"), ("empty", b"")]


@pytest.mark.parametrize("text", ["nothing", "=value"])
def test_a_header_without_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write name=value"):
        Asked(topic="orders", header=[text]).record()


@pytest.mark.parametrize("name", ["timer-cancel", "timer-recall", "timer-transaction"])
def test_headers_that_act_on_another_record_have_commands_of_their_own(name: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"{name} is set by"):
        Asked(topic="orders", header=[f"{name}=x"]).record()


def test_a_record_with_an_id_is_keyed_by_it_and_takes_its_key_along() -> None:
    record = Asked(topic="orders", key="k", value="v", ident="o1").record()
    assert (record.key, record.value) == (b"o1", b"v")
    assert record.headers == [("timer-topic", b"orders"), ("timer-id", b"o1"), ("timer-key", b"k")]
    assert dict(Asked(topic="orders", value="v", ident="o1").record().headers)["timer-key"] is None


def test_what_decides_about_an_id_is_keyed_by_it_too() -> None:
    cancel: Headers = [("timer-cancel", b"o1")]
    assert ById(ident="o1").request(cancel) == Request(cancel, b"o1")
    assert ById(ident="o1", partition=0).request(cancel).partition == 0


@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_decision_is_keyed_by_the_id_of_its_half_message(
    monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    written = list[Request]()
    monkeypatch.setattr(ById, "carry_out", lambda _self, record, *_: written.append(record))
    (commit if decision == "commit" else rollback)(ById(ident="o1"))
    headers: Headers = [("timer-transaction", decision.encode()), ("timer-id", b"o1")]
    assert written == [Request(headers, b"o1")]


def test_a_target_is_needed_unless_a_consumer_group_gives_the_record_back() -> None:
    assert Asked(retry_group="g").record().headers == [
        ("timer-retry-group", b"g"),
        ("timer-attempt", b"0"),
    ]
    with pytest.raises(typer.BadParameter, match="give the target"):
        Asked().record()
    with pytest.raises(typer.BadParameter, match="--attempt needs --retry-group"):
        Asked(topic="orders", attempt=3).record()


def test_a_half_message_needs_an_id_and_may_name_where_to_ask() -> None:
    half = Asked(topic="orders", prepare=True, ident="o1", check_topic="checks").record()
    assert half.headers[1:3] == [
        ("timer-transaction", b"prepare"),
        ("timer-check-topic", b"checks"),
    ]
    with pytest.raises(typer.BadParameter, match="needs --id"):
        Asked(topic="orders", prepare=True).record()
    with pytest.raises(typer.BadParameter, match="--check-topic needs --prepare"):
        Asked(topic="orders", check_topic="checks").record()


@pytest.mark.parametrize(
    ("headers", "target", "due_ms"),
    [
        ([("timer-topic", b"orders")], "orders", NOW_MS),
        ([("timer-topic", b"orders"), ("timer-delay", b"2s")], "orders", NOW_MS + 2_000),
        ([("timer-topic", b"orders"), ("timer-level", b"2")], "orders", NOW_MS + 5_000),
        ([("timer-retry-group", b"g"), ("timer-attempt", b"0")], "retry.g", NOW_MS + 10_000),
        ([("timer-retry-group", b"g"), ("timer-attempt", b"16")], "dlq.g", NOW_MS),
    ],
)
def test_the_expected_end_of_a_record_is_what_the_proxy_will_do(
    headers: list[tuple[str, bytes | None]], target: str, due_ms: int
) -> None:
    record = Request(headers, b"k", b"v")
    assert expected_end(record, Settings(), NOW_MS) == (target, due_ms, None)
    named: Headers = [*headers, ("timer-id", b"o1"), ("timer-key", b"k")]
    assert expected_end(Request(named, b"o1", b"v"), Settings(), NOW_MS)[:2] == (target, due_ms)
    half = Request([*named, ("timer-transaction", b"prepare")], b"o1", b"v")
    assert expected_end(half, Settings(), NOW_MS)[:2] == (target, due_ms)


def test_the_due_of_a_record_that_will_be_rewritten_is_its_own() -> None:
    record = Request([("timer-topic", b"orders"), ("timer-delay", b"30d")])
    prospect = expected_end(record, Settings.model_validate({"roll_after": "1d"}), NOW_MS)
    assert prospect.due_ms == NOW_MS + 30 * 86_400_000


def test_a_record_that_will_be_a_dead_letter_is_known_as_one() -> None:
    record = Request([("timer-topic", b"timer.ingress")])
    rejection = expected_end(record, Settings(), NOW_MS).rejection
    assert rejection is not None
    assert rejection.code == "target-refused"
