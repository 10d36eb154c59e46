"""Recalls by receipt on a real broker. Two judges agree on the ends."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from kafka_delay import DelayProducer, Receipt
from tests.support.installation.admin_client import call
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.oracle.asked import Rules
from tests.support.oracle.auditor import Auditor
from tests.support.oracle.ends import Ends
from tests.support.records import read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

FAR = "365d"
MANY = 200
ROLL_AFTER_MS = 400
WITHIN_S = 180


@pytest.fixture
def producer(installation: Installation) -> Iterator[DelayProducer]:
    settings = {"bootstrap.servers": installation.bootstrap}
    with DelayProducer(settings, ingress=installation.ingress) as made:
        yield made


def judged(installation: Installation, auditor: Auditor) -> Ends:
    ends = installation.judge(WITHIN_S, Rules())
    auditor.confirm(installation, ends)
    return ends


def said(ends: Ends, *receipts: Receipt) -> list[str]:
    return [ends.said[one.origin][0] for one in receipts]


def test_what_a_receipt_names_is_taken_back_and_nothing_else(
    installation: Installation, producer: DelayProducer, auditor: Auditor
) -> None:
    target = installation.target()
    installation.proxy().start_ready()

    def sent(delay: str, ident: str | None = None) -> Receipt:
        return producer.send(target, delay, key=delay, delay=delay, id=ident).result()

    gone = sent("0s")
    installation.await_ends(1)
    plain, named, old = sent(FAR), sent(FAR, "a"), sent(FAR, "b")
    newer = producer.replace("b", target, "newer", key="k", delay=FAR).result()
    kept = sent("1s")
    first = [producer.recall(one).result() for one in (gone, plain, named, old, newer)]
    unproven = [
        producer.recall(kept.origin).result(),
        producer.recall(kept.origin, key="another").result(),
        producer.recall(kept.origin, id="a").result(),
    ]
    again = producer.recall(plain.origin, key=FAR).result()
    many = [producer.send(target, str(n), key=str(n), delay=FAR) for n in range(MANY)]
    recalls = [producer.recall(one.result()) for one in many[::2]]
    cancelled = [producer.send(target, "x", id=f"m-{n}", delay=FAR) for n in range(2)]
    producer.cancel("m-0")
    producer.recall(cancelled[1].result())
    for one in many[1::2]:
        producer.recall(one.result())
    producer.flush()
    ends = judged(installation, auditor)
    assert said(ends, gone, kept) == ["delivered", "delivered"]
    assert said(ends, plain, named, old, newer) == [
        *("cancelled", "cancelled", "replaced", "cancelled")
    ]
    assert said(ends, *first) == ["missed", "applied", "applied", "missed", "applied"]
    assert said(ends, *unproven, again) == ["missed"] * 4
    assert set(said(ends, *(one.result() for one in many))) == {"cancelled"}
    assert set(said(ends, *(one.result() for one in recalls))) == {"applied"}


@pytest.mark.parametrize("ident", [None, "a"])
@pytest.mark.parametrize("loses_its_data", [False, True])
def test_what_was_rewritten_is_taken_back_also_while_the_proxy_is_dead(
    installation: Installation,
    producer: DelayProducer,
    auditor: Auditor,
    ident: str | None,
    loses_its_data: bool,
) -> None:
    target = installation.target()
    proxy = installation.proxy(roll_after=f"{ROLL_AFTER_MS}ms")
    proxy.start_ready()
    receipt = producer.send(target, "far", "k", delay=FAR, id=ident).result()
    other = producer.send(target, "too", "k", delay=FAR, id=ident and "b").result()
    installation.await_ends(6)
    proxy.kill()
    if loses_its_data:
        shutil.rmtree(proxy.data_dir)
    recalls = [producer.recall(receipt).result()]
    proxy.start_ready()
    _recall_as_it_waits(proxy, installation, other)
    ends = judged(installation, auditor)
    assert said(ends, *recalls) == ["applied"]
    for first in (receipt.origin, other.origin):
        chain = [
            ends.said[place][0]
            for place, record in ends.ingress.items()
            if place == first or record.header("timer-first-origin") == first.encode()
        ]
        assert sorted(set(chain)) == ["cancelled", "rolled"], chain
        assert chain.count("cancelled") == 1


def _recall_as_it_waits(proxy: ProxyProcess, installation: Installation, first: Receipt) -> None:
    def is_done() -> bool:
        offset = max(
            record.offset
            for record in read_to_end(installation.bootstrap, installation.ingress)
            if record.header("timer-first-origin") == first.origin.encode()
        )
        place = f"{first.topic}/{first.partition}/{offset}"
        code, answer = call(proxy, "DELETE", f"/records/{place}?wait=30s")
        assert code == 200, answer
        return bool(answer["outcome"] == "applied")

    wait_for(is_done, WITHIN_S, "that it is taken back")
