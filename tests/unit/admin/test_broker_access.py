"""The API's answer when the broker accepts only some of the writes."""

from __future__ import annotations

import pytest

from proxy.admin.broker_access import BrokerAccess
from proxy.admin.problem import Problem
from proxy.config.settings import OverdueLimit, Settings, TargetLimit
from proxy.dispatch.partitioning import partition_of
from proxy.kafka.control import Request
from proxy.protocol.parsed import Purge
from proxy.protocol.proofs import HopAuthenticator, HopKey


def purge(monkeypatch: pytest.MonkeyPatch, failing: int) -> Problem:
    def write(_access: BrokerAccess, topic: str, request: Request) -> str:
        partition = request.partition
        if partition == failing:
            raise Problem(503, "broker", "The broker does not do it: no leader.")
        return f"{topic}/{partition}/7"

    signer = HopAuthenticator(HopKey.new(), "topic-id")
    monkeypatch.setattr(BrokerAccess, "_write", write)
    monkeypatch.setattr(BrokerAccess, "_signer", lambda _access: (signer, 3))
    with pytest.raises(Problem) as raised:
        BrokerAccess(Settings()).purge(Purge("orders", 0, 9), 0)
    return raised.value


def test_a_purge_that_lacks_a_partition_says_which_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(purge(monkeypatch, failing=2)) == (
        "The broker does not do it: no leader. timer.ingress/0/7, timer.ingress/1/7 are written, "
        "and take effect. Call again for the others."
    )


def test_one_of_which_nothing_is_written_says_why_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(purge(monkeypatch, failing=0)) == "The broker does not do it: no leader."


def test_a_rule_for_the_overdue_is_written_for_audits_before_it_can_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[tuple[str, bytes | None]] = []

    def write(_access: BrokerAccess, topic: str, request: Request) -> str:
        assert (topic, request.key is None) == ("timer.settings", False)
        written.append(((request.key or b"").decode(), request.value))
        return f"{topic}/0/1"

    monkeypatch.setattr(BrokerAccess, "_write", write)
    access = BrokerAccess(Settings())
    rule = OverdueLimit(older_than_ms=5_000, action="drop")
    access.limit("orders", TargetLimit(per_second=3, overdue=rule))
    access.limit("orders", TargetLimit(per_second=3))
    access.limit("orders", None)
    keys = [key.partition("/")[0] for key, _value in written]
    assert keys == ["overdue", "limits", "limits", "limits"]
    assert written[0][1] == b'[{"action": "drop", "older_than_ms": 5000, "targets": "orders"}]'
    assert (written[1][0], written[-1][1]) == ("limits/delay-proxy/orders", None)


@pytest.mark.parametrize("served", [["cancel", "recall"], []])
def test_what_producers_may_not_ask_for_and_a_recall_is_signed_for_an_operator(
    monkeypatch: pytest.MonkeyPatch, served: list[str]
) -> None:
    written: list[Request] = []

    def write(_access: BrokerAccess, topic: str, request: Request) -> str:
        written.append(request)
        return f"{topic}/0/1"

    signer = HopAuthenticator(HopKey.new(), "topic-id")
    monkeypatch.setattr(BrokerAccess, "_write", write)
    monkeypatch.setattr(BrokerAccess, "_signer", lambda _access: (signer, 4))
    access = BrokerAccess(Settings.model_validate({"requests": {"serve": served}}))
    access.cancel(b"id", b"key", None, 0)
    access.cancel(b"id", None, 2, 0)
    access.recall(3, "timer.ingress/3/7", 0)
    places = [one.partition for one in written]
    assert places == ([-1, 2, 3] if served else [partition_of(b"key", 4), 2, 3])
    are_signed = [signer.is_own(one.partition, one.key, one.value, one.headers) for one in written]
    assert are_signed == [not served, not served, True]
