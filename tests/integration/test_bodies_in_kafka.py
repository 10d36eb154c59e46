"""With `bodies: kafka` the local disk holds no record bytes, and requests are still fulfilled."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

import pytest
from confluent_kafka import TopicPartition

from proxy.protocol.body import is_stub
from storage.opening import dump
from storage.options import StoreKind
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.quiet_clients import admin_client
from tests.support.records import Headers, Outgoing, read_to_end

pytestmark = pytest.mark.integration

LARGE_BYTES = 900_000
WITHIN_S = 180
WAITS_MS = 20_000
LARGE, SMALL, HALVES = 40, 6_000, 20


def _asking(topic: str, delay_ms: int) -> Headers:
    return [("timer-topic", topic.encode()), ("timer-delay", b"%d" % delay_ms)]


def _any_headers(draw: random.Random) -> Headers:
    names = ["trace", "x", "x", "größe", ""]
    values = [None, b"", b"\xff\x00", b"plain"]
    return [(draw.choice(names), draw.choice(values)) for _ in range(draw.randrange(4))]


def _records(topic: str, longest_ms: int, *, seed: int = 5) -> list[Outgoing]:
    draw = random.Random(seed)
    sizes = [LARGE_BYTES] * LARGE + [None, 0, 20, 300] * (SMALL // 4)
    draw.shuffle(sizes)
    return [
        Outgoing(
            draw.choice([None, b"", b"k%d" % number]),
            None if size is None else draw.randbytes(size),
            [*_asking(topic, draw.randrange(longest_ms)), *_any_headers(draw)],
        )
        for number, size in enumerate(sizes)
    ]


def _bodies_on_disk(proxy: ProxyProcess) -> Iterator[bytes]:
    for folder in proxy.data_dir.glob("*@*"):
        yield from (row["body"] for row in dump(folder))


def _modes(proxy: ProxyProcess) -> set[int]:
    """Return the permissions of the proxy's files and folders. Files may vanish meanwhile."""
    found = set[int]()
    for path in [proxy.data_dir, *proxy.data_dir.rglob("*")]:
        with suppress(FileNotFoundError):
            found.add(path.stat().st_mode & 0o777)
    return found


@pytest.mark.parametrize("kind", ["wheel", "rocksdb"])
def test_killed_in_the_middle_every_record_appears_once_to_the_byte(
    installation: Installation, kind: StoreKind
) -> None:
    topic, proxy = installation.target(), installation.proxy(bodies="kafka", store=kind)
    proxy.start_ready()
    installation.send(_records(topic, 8_000))
    installation.await_ends((LARGE + SMALL) // 3)
    assert _modes(proxy) == {0o700, 0o600}, "other users may read records"
    proxy.kill()
    proxy.start_ready()
    assert installation.judge().counts == {"delivered": LARGE + SMALL}


def _halves(topic: str, turn: int) -> list[Outgoing]:
    asking: Headers = [("timer-topic", topic.encode()), ("timer-check-immunity", b"1h")]
    return [
        Outgoing(b"k", b"half %d of %d" % (n, turn), [*asking, *_decides(turn, n, b"prepare")], 0)
        for n in range(HALVES)
    ]


def _until_replaced(topic: str, turn: int, delay: bytes) -> Iterator[Outgoing]:
    """Return records pending until a replacement is delivered at once. Stubs remain stubs."""
    for n in range(HALVES):
        headers = [("timer-topic", topic.encode()), ("timer-id", b"w%d-%d" % (turn, n))]
        yield Outgoing(b"k", b"waits %d" % n, [*headers, ("timer-delay", delay)], 0)


def _decides(turn: int, number: int, what: bytes) -> Headers:
    return [("timer-id", b"%d-%d" % (turn, number)), ("timer-transaction", what)]


def test_the_setting_changed_to_and_fro_loses_nothing(installation: Installation) -> None:
    topic, proxy = installation.target(), installation.proxy()
    kinds: list[Literal["local", "kafka"]] = ["local", "kafka", "local"]
    for turn, bodies in enumerate(kinds):
        proxy.configure(installation.settings("one", bodies=bodies))
        proxy.start_ready()
        waiting = [*_halves(topic, turn), *_until_replaced(topic, turn, b"1h")]
        installation.send(_records(topic, 15_000, seed=turn) + waiting)
        installation.await_ingested()
        assert proxy.stop() == 0
        stubs = Counter(is_stub(body) for body in _bodies_on_disk(proxy))
        assert stubs[False] >= HALVES * kinds[: turn + 1].count("local")
        assert stubs[True] >= HALVES * kinds[: turn + 1].count("kafka")
        assert (stubs[True] > 0) is (turn > 0)
    proxy.start_ready()
    for turn in range(len(kinds)):
        installation.send(_until_replaced(topic, turn, b"0"))
        installation.send(
            Outgoing(None, None, _decides(turn, number, b"commit"), 0) for number in range(HALVES)
        )
    counts = installation.judge().counts
    assert counts["delivered"] == len(kinds) * (LARGE + SMALL + 2 * HALVES)
    assert counts["replaced"] == len(kinds) * HALVES
    assert not list(proxy.data_dir.glob("*.broken-*"))


def test_the_local_disk_holds_no_record_bytes(installation: Installation) -> None:
    topic, proxy = installation.target(), installation.proxy(bodies="kafka")
    proxy.start_ready()
    installation.send(
        Outgoing(b"k", bytes(LARGE_BYTES), _asking(topic, WAITS_MS)) for _ in range(20)
    )
    installation.await_ingested()
    assert proxy.stop() == 0
    bodies = list(_bodies_on_disk(proxy))
    assert len(bodies) == 20
    assert all(map(is_stub, bodies))
    assert sum(file.stat().st_size for file in proxy.data_dir.rglob("*.body")) < 1_000
    proxy.start_ready()
    assert installation.judge().counts == {"delivered": 20}


def test_a_record_aged_out_is_a_dead_letter_and_the_others_arrive(
    installation: Installation,
) -> None:
    topic, proxy = installation.target(), installation.proxy(bodies="kafka")
    proxy.start_ready()
    installation.send(
        Outgoing(b"k%d" % n, b"v%d" % n, _asking(topic, WAITS_MS + n), n % 2) for n in range(400)
    )
    installation.await_ingested()
    admin = admin_client(installation.bootstrap)
    below = TopicPartition(installation.ingress, 0, 50)
    admin.delete_records([below])[below].result(WITHIN_S)
    installation.await_ends(400)
    assert proxy.stop() == 0
    arrived = read_to_end(installation.bootstrap, topic)
    gone = [f"{installation.ingress}/0/{offset}".encode() for offset in range(50)]
    assert len(arrived) == 350
    assert not {record.header("timer-origin") for record in arrived} & set(gone)
    letters = read_to_end(installation.bootstrap, installation.dead_letters)
    assert sorted(letter.header("timer-origin") or b"" for letter in letters) == sorted(gone)
    assert {letter.header("timer-error") for letter in letters} == {b"body-gone"}
    assert {(letter.key, letter.value) for letter in letters} == {(None, None)}


def test_a_proxy_without_local_data_takes_over(installation: Installation) -> None:
    topic = installation.target()
    first, second = (installation.proxy(name, bodies="kafka") for name in ("one", "two"))
    first.start_ready()
    installation.send(_records(topic, 10_000))
    installation.await_ends(SMALL // 4)
    first.kill()
    started = time.monotonic()
    second.start_ready()
    assert installation.judge().counts == {"delivered": LARGE + SMALL}
    assert time.monotonic() - started < WITHIN_S, "each record is fetched alone"
