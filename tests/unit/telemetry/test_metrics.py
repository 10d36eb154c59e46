"""Metrics for Prometheus: bounded labels, and histograms updated once per transaction."""

import math
from collections.abc import Iterable
from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from proxy.protocol.outcomes import REASONS
from proxy.telemetry.collectors import OTHER
from proxy.telemetry.metrics import (
    REASONS_SHOWN,
    TARGETS_SHOWN,
    Metrics,
)
from proxy.telemetry.status import ShardStatus, Status, StatusCollector
from storage.store import TargetCounts

BOUNDS_MS = (1, 5, 100, 1000)


def a_shard(partition: int = 0, **changes: object) -> ShardStatus:
    facts = {
        "topic": "timer.ingress",
        "partition": partition,
        "state": "running",
        "next_offset": 10,
        "watermark_ms": 5_000,
        "floor": 7,
        "pending": 3,
        "behind": 2,
        "behind_ms": 1_500,
        "pending_bytes": 700,
        **changes,
    }
    return ShardStatus(**facts)  # type: ignore[arg-type]


def samples(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == f"delay_proxy_{name}"
    }


@given(st.dictionaries(st.integers(0, 999).map(str), st.integers(1, 100), max_size=80))
def test_pending_shows_the_largest_targets_and_loses_no_record(pending: dict[str, int]) -> None:
    """Invariant: the largest targets are shown, and the sum is exact."""
    (family, *_) = StatusCollector(
        lambda: Status(pending_by_target=TargetCounts(pending)), TARGETS_SHOWN
    ).collect()
    shown = {sample.labels["target"]: sample.value for sample in family.samples}
    assert sum(shown.values()) == sum(pending.values())
    shown.pop(OTHER, None)
    assert all(pending[target] == count for target, count in shown.items())
    largest = sorted(pending.values(), reverse=True)[:TARGETS_SHOWN]
    assert sorted(shown.values(), reverse=True) == largest


def test_targets_beyond_the_bound_are_counted_together() -> None:
    pending = {f"t{999 - number}": 1000 - number for number in range(TARGETS_SHOWN + 3)}
    status = Status(pending_by_target=TargetCounts(pending, others=7))
    shown = samples(Metrics(lambda: status).registry, "pending_records")
    assert len(shown) == TARGETS_SHOWN + 1
    assert shown[(OTHER,)] == sum(1000 - TARGETS_SHOWN - number for number in range(3)) + 7
    assert sum(shown.values()) == sum(pending.values()) + 7


def test_so_many_targets_are_shown_as_are_asked_for() -> None:
    counts = TargetCounts({"a": 3, "b": 2, "c": 1})
    status = Status(pending_by_target=counts, pending_bytes_by_target=counts)
    registry = Metrics(lambda: status, targets_shown=1).registry
    for name in ("pending_records", "pending_bytes"):
        assert samples(registry, name) == {("a",): 3, (OTHER,): 3}


def test_reasons_beyond_the_bound_are_counted_together() -> None:
    metrics = Metrics()
    for number in range(REASONS_SHOWN - len(REASONS) + 2):
        metrics.count_dead_letters({f"reason-{number}": 2})
    metrics.count_dead_letters({"reason-0": 1})
    shown = samples(metrics.registry, "dead_letters_total")
    assert shown[(OTHER,)] == 4
    assert shown[("reason-0",)] == 3
    assert len(shown) == REASONS_SHOWN + 1


def test_lateness_counts_the_deliveries_too() -> None:
    metrics = Metrics()
    metrics.count_deliveries(["a", "b", "a"], np.array([0, 3, 70_000]))
    assert samples(metrics.registry, "deliveries_total") == {(): 3}
    assert samples(metrics.registry, "lateness_seconds_count") == {(): 3}


def test_a_transaction_is_counted_with_its_result_and_its_time() -> None:
    metrics = Metrics()
    metrics.count_transaction("committed", 0.01)
    metrics.count_transaction("aborted", 0.02)
    metrics.count_transaction("aborted", 0.03)
    assert samples(metrics.registry, "transactions_total") == {("committed",): 1, ("aborted",): 2}
    assert samples(metrics.registry, "transaction_seconds_count") == {(): 3}


def test_shards_are_shown_as_they_are_now_and_vanish_when_they_leave() -> None:
    shards: list[Iterable[ShardStatus]] = [[a_shard(0), a_shard(3, state="catching-up")], []]
    metrics = Metrics(lambda: Status(tuple(shards[0])))
    assert samples(metrics.registry, "watermark_seconds") == {("0",): 5.0, ("3",): 5.0}
    assert samples(metrics.registry, "enqueue_lag_seconds")[("0",)] == 1.5
    assert samples(metrics.registry, "shard_pending_bytes")[("0",)] == 700
    assert samples(metrics.registry, "shard_state")["3", "catching-up"] == 1
    assert samples(metrics.registry, "shard_state")["3", "running"] == 0
    shards.pop(0)
    assert samples(metrics.registry, "watermark_seconds") == {}


def test_what_may_be_counted_some_day_is_there_from_the_start() -> None:
    """Prometheus' `increase` misses the first value of a series."""
    registry = Metrics().registry
    assert samples(registry, "transactions_total") == {("committed",): 0, ("aborted",): 0}
    assert samples(registry, "dead_letters_total") == {(reason,): 0 for reason in REASONS}
    assert samples(registry, "outcomes_total")["requeued",] == 0
    assert samples(registry, "sessions_lost_total") == {(): 0}


def test_a_worker_is_ready_once_it_has_joined_and_all_its_shards_have_caught_up() -> None:
    statuses = [
        Status(assigned=False),
        Status((a_shard(0), a_shard(1, state="recovering")), assigned=True),
        Status((a_shard(0), a_shard(1, state="held")), assigned=True),
    ]
    registries = [
        Metrics(partial(Status, s.shards, assigned=s.assigned)).registry for s in statuses
    ]
    assert [samples(registry, "ready")[()] for registry in registries] == [0, 0, 1]


def test_whether_an_operator_has_stopped_taking_in_is_shown_also_without_a_session() -> None:
    for is_paused in (False, True):
        registry = Metrics(partial(Status, is_ingest_paused=is_paused)).registry
        assert samples(registry, "ingest_paused") == {(): float(is_paused)}


def test_where_the_log_starts_is_not_shown_before_the_broker_has_said_it() -> None:
    shards = (a_shard(0), a_shard(1, log_start=5, aging=2))
    registry = Metrics(lambda: Status(shards)).registry
    assert samples(registry, "log_start_offset") == {("1",): 5}
    assert samples(registry, "aging_offsets") == {("0",): 0, ("1",): 2}


def test_without_a_session_the_lag_is_unknown_instead_of_what_it_was() -> None:
    metrics = Metrics()
    metrics.count_lost_session()
    assert samples(metrics.registry, "sessions_lost_total") == {(): 1}
    assert math.isnan(samples(metrics.registry, "due_lag_seconds")[()])


def test_every_metric_has_the_prefix_and_can_be_written_out() -> None:
    text = generate_latest(
        Metrics(lambda: Status((a_shard(),), 0.0, True, TargetCounts({"t": 1}))).registry
    )
    names = [line.split()[2] for line in text.decode().splitlines() if line.startswith("# TYPE")]
    assert names
    assert all(name.startswith("delay_proxy_") for name in names)
