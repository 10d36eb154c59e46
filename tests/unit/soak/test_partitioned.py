"""The judge of long runs, one ingress partition at a time, finds the same as the other judge."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.oracle.asked import Rules
from tests.support.oracle.committed_reader import Placed
from tests.support.oracle.partitioned import Tally, put_all, wrong_of
from tests.support.oracle.spool import AT_ONCE, Spool
from tests.support.records import Incoming

IN, ORDERS = "ingress", "orders"
MANY = 2 * AT_ONCE + 7
Topics = dict[str, list[Placed]]


def asked(partition: int, offset: int) -> Placed:
    headers: list[tuple[str, bytes | None]] = [
        ("timer-topic", b"orders"),
        ("timer-delay", b"5"),
        ("timer-id", b"%d" % offset),
    ]
    return Placed(IN, Incoming(partition, offset, b"key", b"value %d" % offset, headers, offset))


def delivered(sent: Placed) -> Placed:
    due = sent.record.timestamp_ms + 5
    stamps: list[tuple[str, bytes | None]] = [
        ("timer-origin", sent.place.encode()),
        ("timer-due", b"%d" % due),
    ]
    return Placed(ORDERS, replace(sent.record, headers=stamps, timestamp_ms=due))


def outcome(origin: str, what: str, ident: str, **more: str) -> Placed:
    said = {"origin": origin, "outcome": what, "due": None, "id": ident, "detail": "", **more}
    return Placed("outcomes", Incoming(0, 0, origin.encode(), json.dumps(said).encode(), [], 0))


def sound() -> Topics:
    sent = [asked(partition, offset) for partition in (0, 1) for offset in range(MANY)]
    cancel = Placed(IN, Incoming(1, MANY, b"key", b"", [("timer-cancel", b"0")], 0))
    taken_back = sent[MANY]
    return {
        "ingress": [*sent, cancel],
        "targets": [delivered(one) for one in sent if one is not taken_back],
        "outcomes": [
            outcome(taken_back.place, "cancelled", "0"),
            outcome(cancel.place, "applied", "0"),
        ],
        "dead-letters": [],
    }


def wrong(topics: Topics, folder: Path, tally: Tally | None = None) -> list[str]:
    spool = Spool(folder / "spool")
    for kind, records in topics.items():
        put_all(spool, kind, records)
    return list(wrong_of(spool, Rules(), tally or Tally()))


def change(at: int, **fields: object) -> Callable[[Topics], None]:
    def changed(topics: Topics) -> None:
        topic, record = topics["targets"][at]
        topics["targets"][at] = Placed(topic, replace(record, **fields))  # type: ignore[arg-type]

    return changed


def moved(topics: Topics) -> None:
    stamps = [("timer-origin", b"ingress/1/%d" % (MANY + 9)), ("timer-due", b"5")]
    change(0, headers=stamps)(topics)


FAULTS: dict[str, tuple[Callable[[Topics], object], str]] = {
    "missing": (lambda topics: topics["targets"].pop(3), "has 0 ends"),
    "twice": (lambda topics: topics["targets"].append(topics["targets"][3]), "has 2 ends"),
    "early": (change(5, timestamp_ms=0), "early"),
    "altered": (change(5, value=b"other"), "another value"),
    "of nobody": (change(0, headers=[]), "was never in the ingress"),
    "of another partition": (moved, "was never in the ingress"),
    "cancelled by nobody": (lambda topics: topics["ingress"].pop(), "possible are"),
}


def test_nothing_is_wrong_with_what_is_sound_and_all_of_it_is_counted(tmp_path: Path) -> None:
    tally = Tally()
    assert not wrong(sound(), tmp_path, tally)
    assert tally.records == 2 * MANY + 1
    assert tally.counts == {"delivered": 2 * MANY - 1, "cancelled": 1, "applied": 1}
    assert len(tally.delivered_ms) == 2 * MANY - 1
    assert set(tally.lateness_ms) == {0}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_planted_is_found(fault: str, tmp_path: Path) -> None:
    plant, sentence = FAULTS[fault]
    topics = sound()
    plant(topics)
    found = wrong(topics, tmp_path)
    assert any(sentence in one for one in found), found
