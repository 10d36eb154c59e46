"""Every kind of local store delivers through `run` and a kill, each record once."""

from __future__ import annotations

import random

import pytest

from storage.folder import kind_of
from tests.support.installation.installation import Installation
from tests.support.records import Outgoing

pytestmark = [pytest.mark.integration, pytest.mark.faults]

RECORDS = 20_000


def _delayed(topic: str) -> list[Outgoing]:
    draw = random.Random(3)
    delays = [draw.choice([b"1s", b"5s", b"%d" % draw.randrange(8_000)]) for _ in range(RECORDS)]
    return [Outgoing(b"k%d" % n, bytes(200), _asking(topic, delays[n])) for n in range(RECORDS)]


def _asking(topic: str, delay: bytes) -> list[tuple[str, bytes]]:
    return [("timer-topic", topic.encode()), ("timer-delay", delay)]


def test_killed_in_the_middle_every_record_appears_once(installation: Installation) -> None:
    topic, proxy = installation.target(), installation.proxy(store="rocksdb")
    proxy.start_ready()
    installation.send(_delayed(topic))
    installation.await_ends(RECORDS // 3)
    proxy.kill()
    shards = list(proxy.data_dir.glob("*@*"))
    assert {kind_of(folder) for folder in shards} == {"rocksdb"}
    proxy.start_ready()
    assert installation.judge().counts == {"delivered": RECORDS}
    assert not list(proxy.data_dir.glob("*.broken-*"))


def test_another_kind_in_the_same_folder_is_built_from_the_broker(
    installation: Installation,
) -> None:
    topic, proxy = installation.target(), installation.proxy()
    proxy.start_ready()
    installation.send(_delayed(topic))
    installation.await_ends(RECORDS // 3)
    assert proxy.stop() == 0
    with (proxy.folder / "proxy.yaml").open("a") as settings:
        settings.write("store: rocksdb\n")
    proxy.start_ready()
    assert installation.judge().counts == {"delivered": RECORDS}
    assert len(list(proxy.data_dir.glob("*.broken-*"))) == 2
