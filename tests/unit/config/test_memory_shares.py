"""Shares of a worker's memory."""

import pytest

from proxy.config.machine import LEAST_BYTES, MemoryShares, memory_shares
from proxy.config.settings import Settings
from proxy.kafka.client_settings import consumer_config

MIB = 2**20


def test_all_shares_together_are_less_than_the_budget() -> None:
    shares = memory_shares(512 * MIB, {})
    assert shares == MemoryShares(128 * MIB, 192 * MIB, 32 * MIB, 32 * MIB, 16 * MIB)
    in_transaction, in_queues = 6 * shares.transaction, 2 * shares.queue + 2 * shares.fetch
    assert shares.most_memtables + in_transaction + in_queues <= 512 * MIB


def test_queues_that_the_user_sets_count_first_and_win() -> None:
    kafka = {"queued.max.messages.kbytes": "65536", "fetch.max.bytes": str(50 * MIB)}
    left = memory_shares((512 + 64 + 50) * MIB, kafka)
    assert left == memory_shares(512 * MIB, {})
    own = consumer_config(Settings.model_validate({"kafka": kafka}), 0)
    assert own["queued.max.messages.kbytes"] == "65536"
    assert own["fetch.max.bytes"] == str(50 * MIB)


def test_the_consumer_fetches_within_its_share() -> None:
    config = consumer_config(Settings(), 0)
    assert (config["queued.max.messages.kbytes"], config["fetch.max.bytes"]) == (32_768, 16 * MIB)


def test_a_budget_too_small_is_refused_with_the_least_that_will_do() -> None:
    assert memory_shares(LEAST_BYTES, {}).transaction == 4 * MIB
    with pytest.raises(ValueError, match="set it to at least 64MiB$"):
        memory_shares(LEAST_BYTES - 1, {})
    with pytest.raises(ValueError, match=r"at least 114MiB \(.* of `kafka` included\)"):
        memory_shares(100 * MIB, {"fetch.max.bytes": str(50 * MIB)})
