"""Proxy crashes at any moment, also with loss of its disk: every record once, none early."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterable

import pytest

from tests.support.installation.installation import Installation
from tests.support.installation.load import Load
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.oracle.auditor import Auditor
from tests.support.records import Outgoing

pytestmark = [pytest.mark.integration, pytest.mark.faults]

SOAK_S = 600
STOPPED_WITHIN_S = 30


def _crash(proxy: ProxyProcess, draw: random.Random) -> None:
    """Start the proxy and kill it, as often during its start as during its work."""
    proxy.start()
    if draw.random() < 0.5:
        proxy.wait_ready()
        time.sleep(draw.uniform(0, 0.3))
    else:
        time.sleep(draw.uniform(0.2, 1.5))
    proxy.kill()


def _crash_loop(
    installation: Installation, auditor: Auditor, crashes: Iterable[int], *, keeps_disk: bool
) -> None:
    targets = [installation.target(partitions=2), installation.target("bills")]
    proxy, draw = installation.proxy(), random.Random(1)
    with Load(installation, targets, per_second=400) as load:
        for _ in crashes:
            _crash(proxy, draw)
            if not keeps_disk:
                shutil.rmtree(proxy.data_dir, ignore_errors=True)
        proxy.start_ready()
    ends = installation.judge(360)
    assert ends.counts == {"delivered": load.sent}
    auditor.confirm(installation, ends)


def _until(deadline: float) -> Iterable[int]:
    while time.monotonic() < deadline:
        yield 0


@pytest.mark.parametrize(
    ("crashes", "disk"), [(10, "kept"), pytest.param(5, "lost", marks=pytest.mark.core)]
)
def test_killed_many_times_at_random_moments_under_load(
    installation: Installation, auditor: Auditor, crashes: int, disk: str
) -> None:
    _crash_loop(installation, auditor, range(crashes), keeps_disk=disk == "kept")


@pytest.mark.long
@pytest.mark.parametrize("disk", ["kept", "lost"])
def test_killed_again_and_again_for_ten_minutes(
    installation: Installation, auditor: Auditor, disk: str
) -> None:
    until = _until(time.monotonic() + SOAK_S)
    _crash_loop(installation, auditor, until, keeps_disk=disk == "kept")


def _pending(topic: str, count: int, delays_ms: range) -> list[Outgoing]:
    draw = random.Random(2)
    headers = [
        [("timer-topic", topic.encode()), ("timer-delay", b"%d" % draw.choice(delays_ms))]
        for _ in range(count)
    ]
    return [Outgoing(b"k%d" % n, bytes(300), asked) for n, asked in enumerate(headers)]


def test_data_folder_deleted_while_stopped_is_rebuilt_from_the_broker(
    installation: Installation,
) -> None:
    topic, proxy = installation.target(), installation.proxy()
    proxy.start_ready()
    installation.send(_pending(topic, 3_000, range(6_000)))
    installation.await_ends(500)
    assert proxy.stop() == 0
    shutil.rmtree(proxy.data_dir)

    proxy.start_ready()

    assert installation.judge().counts == {"delivered": 3_000}


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def _scramble(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content))
    return content[:start] + draw.randbytes(min(64, len(content) - start)) + content[start + 64 :]


def _empty(_content: bytes, _draw: random.Random) -> bytes:
    return b""


def _damage(proxy: ProxyProcess, how: Callable[[bytes, random.Random], bytes]) -> int:
    draw = random.Random(3)
    files = [
        path
        for folder in proxy.data_dir.glob("*@*")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.stat().st_size and ".broken" not in folder.name
    ]
    for path in files:
        path.write_bytes(how(path.read_bytes(), draw))
    return len(files)


def test_damaged_files_are_put_aside_and_the_shard_is_rebuilt(installation: Installation) -> None:
    topic = installation.target()
    proxy = installation.proxy(wheel={"slots": 2_000, "precision_ms": 100})
    for how in (_cut, _scramble, _empty):
        proxy.start_ready()
        installation.send(_pending(topic, 1_000, range(3_000, 6_000)))
        installation.await_ingested()
        assert proxy.stop() == 0
        assert _damage(proxy, how) > 0
    proxy.start_ready()

    assert installation.judge().counts == {"delivered": 3_000}
    assert "local state put aside" in proxy.whole_log


def test_sigterm_under_load_ends_with_exit_code_zero_in_a_few_seconds(
    installation: Installation,
) -> None:
    patient = installation.kafka(**{"session.timeout.ms": "45000"})
    topic, proxy = installation.target(), installation.proxy(kafka=patient)
    proxy.start_ready()
    with Load(installation, [topic], per_second=2_000, longest_delay_ms=500) as load:
        time.sleep(2)
        asked_at = time.monotonic()
        assert proxy.stop() == 0
        took_s = time.monotonic() - asked_at
    assert took_s < STOPPED_WITHIN_S
    assert "session lost" not in proxy.log

    proxy.start_ready()
    assert installation.judge().counts == {"delivered": load.sent}
