"""Output and conclusions of `tools.benchmarks.audit_scale`, without a broker."""

import json
import os
from pathlib import Path

from proxy.protocol.body import IngressPartition
from proxy.protocol.proofs import HopAuthenticator, HopKey
from tools.benchmarks.audit_scale.curve import Curve
from tools.benchmarks.audit_scale.event_log import EventLog
from tools.benchmarks.audit_scale.mix import HOPS, RECORDS, VERDICTS, Hundred, Mix
from tools.benchmarks.audit_scale.times import Times
from tools.benchmarks.audit_scale.topics import Topics

AUTHENTICATOR = HopAuthenticator(HopKey(bytes(32)), "topic-id")
MIX = Mix(Topics("audit"), AUTHENTICATOR, (b"one", b"two"))
MILLION = 1_000_000


def hundred(partition: int, first: int) -> Hundred:
    return MIX.hundred(partition, first, Times(1_790_000_000_000).moment(first // RECORDS))


def test_each_record_of_a_hundred_has_a_verdict() -> None:
    assert len([*hundred(3, 200).records()]) == RECORDS == sum(VERDICTS.values())


def test_each_record_that_has_ended_has_its_end_and_nothing_else_has() -> None:
    topics, ends = MIX.topics, [one.topic for one in hundred(3, 200).ends()]
    with_outcome = RECORDS - VERDICTS["delivered"] - VERDICTS["pending"]
    assert ends.count(topics.outcomes) == with_outcome
    assert ends.count(topics.dead_letters) == VERDICTS["dead_lettered"]
    assert sum(ends.count(target) for target in topics.targets) == VERDICTS["delivered"]


def test_successors_are_signed_and_lie_behind_what_they_go_on_from() -> None:
    records, prefix = [*hundred(3, 200).records()], IngressPartition("audit.ingress", 3).prefix
    for slot in HOPS:
        went_on = records[slot + len(HOPS)]
        headers = dict(went_on.headers)
        assert AUTHENTICATOR.is_own(3, went_on.key, went_on.value, went_on.headers)
        assert headers["timer-hop-from"] == b"%d" % (200 + slot)
        assert headers["timer-first-origin"] == f"{prefix}{200 + slot}".encode()


def test_a_line_is_straight_whatever_is_fixed() -> None:
    points = [(n * MILLION, 40 + 12.0 * n) for n in (1, 3, 10, 30)]
    curve = Curve.through(points)
    assert (round(curve.fixed_s), round(curve.per_million_s), curve.is_straight) == (40, 12, True)


def test_a_step_that_is_dearer_than_the_line_bends_it() -> None:
    points = [(1 * MILLION, 50.0), (3 * MILLION, 70.0), (10 * MILLION, 140.0)]
    assert not Curve.through([*points, (30 * MILLION, 900.0)]).is_straight


def test_profiles_are_those_of_the_last_audits_in_their_order(tmp_path: Path) -> None:
    for name, ended_s in (("local-3", 10), ("local-1", 20), ("local-2", 30)):
        log = tmp_path / name
        begun = {"Event": "SparkListenerApplicationStart", "Timestamp": ended_s}
        log.write_text(json.dumps(begun) + "\n", "utf-8")
        os.utime(log, (ended_s, ended_s))
    assert [log.began_ms for log in EventLog.newest(tmp_path, 2)] == [20, 30]
