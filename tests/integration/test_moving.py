"""Pending records moved from one broker to another: each is delivered once, there."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.dispatch.partitioning import partition_of
from tests.conftest import StartBroker
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import REPOSITORY
from tests.support.records import Headers, Incoming, Outgoing, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 240.0
PARTITIONS = 2
FAR = b"1h"
ALIASES = ["rabbitmq"]
KILLS = 8


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @property
    def said(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


class Home(Installation):
    """An installation, and its operator."""

    @property
    def config(self) -> Path:
        return self.proxy().config_path

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "proxy", *words, "--config", str(self.config)]

    def call(self, *words: str, stdin: bytes | None = None) -> Ended:
        done = subprocess.run(
            self.command(*words),
            check=False,
            cwd=REPOSITORY,
            capture_output=True,
            input=stdin,
            timeout=WITHIN_S,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def delivered(self, topic: str) -> list[Incoming]:
        return read_to_end(self.bootstrap, topic)

    def stop_when_read(self) -> None:
        self.await_ingested()
        self.stop_proxies()


@pytest.fixture
def old(kafka: str, tmp_path: Path) -> Iterator[Home]:
    home = Home(kafka, tmp_path / "old", PARTITIONS)
    home.proxy(header_aliases=ALIASES)
    yield home
    home.close()


@pytest.fixture
def new(kafka: str, tmp_path: Path) -> Iterator[Home]:
    """Yield another installation on the same broker, which is enough for most tests."""
    home = _new_home(kafka, tmp_path)
    yield home
    home.close()


@pytest.fixture
def far(own_broker: StartBroker, tmp_path: Path) -> Iterator[Home]:
    """Yield an installation on another broker."""
    home = _new_home(own_broker().bootstrap_servers, tmp_path)
    yield home
    home.close()


def _new_home(bootstrap: str, folder: Path, partitions: int = PARTITIONS) -> Home:
    home = Home(bootstrap, folder / f"new-{partitions}", partitions)
    home.proxy(header_aliases=ALIASES, clock={"max_step": "3h"})
    assert home.call("topics", "create").code == 0
    return home


def _target(old: Home, new: Home) -> str:
    name = old.target()
    if new.bootstrap == old.bootstrap:
        new.targets.append(name)
    else:
        new.named_target(name)
    return name


def _asking(topic: str, delay: bytes = FAR, **more: bytes) -> Headers:
    own: Headers = [(f"timer-{name.replace('_', '-')}", raw) for name, raw in more.items()]
    return [("timer-topic", topic.encode()), ("timer-delay", delay), *own]


def _by_value(records: Sequence[Incoming]) -> Counter[bytes | None]:
    return Counter(one.value for one in records)


def _move(old: Home, new: Home, file: Path) -> None:
    exported = old.call("export", str(file), "--json")
    assert exported.code == 0, exported.err
    imported = new.call("import", str(file), "--json")
    assert imported.code == 0, imported.err
    assert imported.said["scheduled"] == exported.said["records"]


def _fire_all(home: Home, target: str, values: set[bytes]) -> list[Incoming]:
    """Deliver the pending records now, by a clock that is ahead."""
    home.proxy().start_ready(clock_ahead_s=2 * 3600)
    wait_for(
        lambda: values <= set(_by_value(home.delivered(target))), WITHIN_S, "all to be delivered"
    )
    return home.delivered(target)


@pytest.mark.core
def test_each_kind_of_pending_record_is_moved_to_another_broker_and_only_those(
    old: Home, far: Home, tmp_path: Path
) -> None:
    target = _target(old, far)
    proxy = old.proxy()
    proxy.start_ready()
    big = random.randbytes(900_000)
    old.send(
        [
            Outgoing(b"k", b"plain", _asking(target)),
            Outgoing(None, None, [*_asking(target), ("own", b"\xff\x00"), ("own", None)]),
            Outgoing(b"i", b"keyed", _asking(target, key=b"other", id=b"\xfe id")),
            Outgoing(b"k", b"at partition 0", _asking(target, partition=b"0")),
            Outgoing(b"k", b"foreign", [("x-delay", b"3600000"), ("timer-topic", target.encode())]),
            Outgoing(b"k", big, _asking(target)),
            Outgoing(b"g", b"retried", _asking(target, retry_group=b"g", attempt=b"2")),
            Outgoing(b"h", b"committed half", _asking(target, id=b"h", transaction=b"prepare")),
            Outgoing(b"h", b"", [("timer-id", b"h"), ("timer-transaction", b"commit")]),
            Outgoing(b"r", b"replaced", _asking(target, id=b"r")),
            Outgoing(b"r", b"replacing", _asking(target, id=b"r")),
            Outgoing(b"c", b"cancelled", _asking(target, id=b"c")),
            Outgoing(b"c", b"", [("timer-cancel", b"c")]),
            Outgoing(b"l", b"cancelled while the proxy is down", _asking(target, id=b"l")),
            Outgoing(b"k", b"delivered", _asking(target, b"0")),
            Outgoing(b"k", b"cancelled in the new home", _asking(target, id=b"n", key=b"n")),
        ]
    )
    old.stop_when_read()
    old.send(
        [
            Outgoing(b"l", b"", [("timer-cancel", b"l")]),
            Outgoing(b"k", b"unread and due", _asking(target, b"0")),
            Outgoing(b"k", b"unread", _asking(target)),
        ]
    )
    before = {one.value: one for one in old.delivered(target)}
    assert set(before) == {b"delivered"}
    file = tmp_path / "pending.jsonl"
    _move(old, far, file)
    _check_delivered(far, target, big)


def _check_delivered(new: Home, target: str, big: bytes) -> None:
    moved = {
        *(b"plain", b"keyed", b"at partition 0", b"foreign", big, b"retried", b"committed half"),
        *(b"replacing", b"unread and due", b"unread"),
    }
    new.send([Outgoing(b"k", b"", [("timer-cancel", b"n")], _partition_of(new, b"n"))])
    delivered = _fire_all(new, target, moved)
    assert _by_value(delivered) == Counter([*moved, None])
    by_value = {one.value: one for one in delivered}
    assert by_value[b"keyed"].key == b"other"
    assert [one for one in by_value[None].headers if one[0] == "own"] == [
        ("own", b"\xff\x00"),
        ("own", None),
    ]
    assert ("x-delay", b"3600000") in by_value[b"foreign"].headers
    for one in delivered:
        moved_from = (one.header("moved-from") or b"").decode()
        assert "/t" in moved_from
        assert ".ingress/" in moved_from
    assert [letter.value for letter in read_to_end(new.bootstrap, new.dead_letters)] == []


def _partition_of(home: Home, ident: bytes) -> int:
    records = read_to_end(home.bootstrap, home.ingress)
    return next(one.partition for one in records if one.header("timer-id") == ident)


def _pending(home: Home, target: str, records: int) -> list[bytes]:
    values = [b"%d" % number for number in range(records)]
    home.send(Outgoing(value, value, _asking(target, id=value)) for value in values)
    proxy = home.proxy()
    proxy.start_ready()
    home.stop_when_read()
    return values


def test_import_that_is_killed_at_any_moment_and_repeated_schedules_each_record_once(
    old: Home, new: Home, tmp_path: Path
) -> None:
    target = _target(old, new)
    values = _pending(old, target, 6_000)
    file = tmp_path / "pending.jsonl"
    assert old.call("export", str(file)).code == 0
    began_s = time.monotonic()
    assert new.call("import", str(file), "--dry-run").code == 0
    whole_s = time.monotonic() - began_s
    for number in range(KILLS):
        importing = subprocess.Popen(
            new.command("import", str(file)), cwd=REPOSITORY, stdout=subprocess.DEVNULL
        )
        try:
            importing.wait(whole_s * (0.5 + number / KILLS))
        except subprocess.TimeoutExpired:
            importing.send_signal(signal.SIGKILL)
            importing.wait()
    last = new.call("import", str(file))
    assert last.code == 0, last.err
    ingress = read_to_end(new.bootstrap, new.ingress)
    assert _by_value(ingress) == Counter(values)
    again = new.call("import", str(file), "--json")
    assert (again.code, again.said["scheduled"]) == (0, 0)


def test_two_imports_at_once_schedule_each_record_once(
    old: Home, new: Home, tmp_path: Path
) -> None:
    target = _target(old, new)
    values = _pending(old, target, 3_000)
    file = tmp_path / "pending.jsonl"
    assert old.call("export", str(file)).code == 0
    both = [
        subprocess.Popen(
            new.command("import", str(file)), cwd=REPOSITORY, stdout=subprocess.DEVNULL
        )
        for _ in range(2)
    ]
    codes = [one.wait(WITHIN_S) for one in both]
    assert 0 in codes
    assert _by_value(read_to_end(new.bootstrap, new.ingress)) == Counter(values)


def test_damaged_export_schedules_nothing(old: Home, new: Home, tmp_path: Path) -> None:
    target = _target(old, new)
    _pending(old, target, 20)
    file = tmp_path / "pending.jsonl"
    assert old.call("export", str(file)).code == 0
    whole = file.read_bytes()
    *lines, trailer = whole.splitlines(keepends=True)
    swapped = [lines[0], lines[2], lines[1], *lines[3:], trailer]
    damaged = [
        b"",
        b"".join(lines),
        whole[: len(whole) // 2],
        whole + b"{}\n",
        whole.replace(b'"due":17', b'"due":18', 1),
        b"".join(swapped),
        b"".join([*lines[:-1], trailer]),
        whole.replace(b'"version":1', b'"version":2'),
        b'{"format":"kafka-delay-proxy export","version":1}\n',
    ]
    for content in damaged:
        ended = new.call("import", "-", stdin=content)
        assert ended.code == 1, content[:300]
        assert "whole export" in ended.err
    assert read_to_end(new.bootstrap, new.ingress) == []


def test_import_refuses_what_would_be_delivered_twice_or_not_at_all(
    old: Home, new: Home, tmp_path: Path
) -> None:
    target = _target(old, new)
    missing = f"{old.name}.missing"
    _pending(old, target, 5)
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    assert old.call("export", str(first)).code == 0
    home = old.call("import", str(first))
    assert (home.code, "--allow-twice" in home.err) == (1, True)
    assert new.call("import", str(first)).code == 0
    old.send([Outgoing(b"later", b"later", _asking(missing))])
    assert old.call("export", str(second)).code == 0
    lacking = new.call("import", str(second))
    assert (lacking.code, missing in lacking.err) == (1, True)
    new.named_target(missing)
    wait_for(
        lambda: "target-unknown" not in new.call("import", str(second), "--dry-run").err,
        WITHIN_S,
        "the new target to be known",
    )
    twice = new.call("import", str(second))
    assert (twice.code, "--allow-twice" in twice.err) == (1, True)
    assert len(read_to_end(new.bootstrap, new.ingress)) == 5


def test_undecided_half_message_is_not_moved_silently(old: Home, new: Home, tmp_path: Path) -> None:
    target = _target(old, new)
    half = [*_asking(target, id=b"h", transaction=b"prepare"), ("timer-check-immunity", b"1h")]
    old.send([Outgoing(b"h", b"half", half)])
    values = _pending(old, target, 3)
    file = tmp_path / "pending.jsonl"
    refused = old.call("export", str(file))
    assert (refused.code, "undecided" in refused.err, file.exists()) == (1, True, False)
    other = old.call("export", str(file), "--set", "group_id=other")
    assert (other.code, "no committed offset" in other.err) == (1, True)
    said = old.call("export", str(file), "--partial", "--json").said
    assert (said["records"], said["left_out"]) == (3, {"undecided half message": 1})
    assert new.call("import", str(file)).code == 0
    assert _by_value(read_to_end(new.bootstrap, new.ingress)) == Counter(values)


def test_export_in_a_topic_moves_to_an_ingress_with_other_partitions(
    old: Home, new: Home, tmp_path: Path
) -> None:
    """The topic is of the old broker. Both ingress topics are there."""
    wide = _new_home(old.bootstrap, tmp_path, 5)
    target = _target(old, wide)
    values = _pending(old, target, 50)
    topic = f"{old.name}.export"
    for _ in range(2):
        assert old.call("export", "--topic", topic).code == 0
    done = wide.call("import", "--topic", topic, "--json")
    assert (done.code, done.said["scheduled"]) == (0, 50), done.err
    ingress = read_to_end(wide.bootstrap, wide.ingress)
    assert _by_value(ingress) == Counter(values)
    wide.send(
        Outgoing(value, b"", [("timer-cancel", value)], partition_of(value, 5))
        for value in values[:49]
    )
    delivered = _fire_all(wide, target, {values[49]})
    assert _by_value(delivered) == Counter(values[49:])
    wide.close()


def test_two_records_with_one_id_do_not_move_into_one_partition(old: Home, tmp_path: Path) -> None:
    """The second would replace the first. In the old ingress they lie in two partitions."""
    narrow = _new_home(old.bootstrap, tmp_path, 1)
    target = _target(old, narrow)
    old.send(Outgoing(b"k", b"v", _asking(target, id=b"same"), number) for number in range(2))
    _pending(old, target, 2)
    file = tmp_path / "pending.jsonl"
    assert old.call("export", str(file)).code == 0
    refused = narrow.call("import", str(file))
    assert (refused.code, "as many partitions" in refused.err) == (1, True)
    assert read_to_end(narrow.bootstrap, narrow.ingress) == []
    narrow.close()


def test_overdue_record_is_delivered_in_spite_of_max_past(
    old: Home, new: Home, tmp_path: Path
) -> None:
    target = _target(old, new)
    old.proxy().start_ready()
    old.send([Outgoing(b"k", b"overdue", _asking(target, b"4s"))])
    old.stop_when_read()
    file = tmp_path / "pending.jsonl"
    assert old.call("export", str(file)).code == 0
    if old.delivered(target):
        pytest.skip("the machine was too slow: the proxy delivered the record")
    due_ms = json.loads(file.read_text().splitlines()[1])["due"]
    wait_for(lambda: time.time() * 1000 > due_ms + 3_000, WITHIN_S, "the due to pass")
    new.proxy().configure(new.settings("one", max_past="2s"))
    assert new.call("import", str(file)).code == 0
    new.proxy().start_ready()
    wait_for(lambda: new.delivered(target), WITHIN_S, "the overdue record")
    new.judge()
    assert _by_value(new.delivered(target)) == Counter([b"overdue"])


def test_export_beside_a_running_proxy_says_so_and_takes_one_position(
    old: Home, new: Home, tmp_path: Path
) -> None:
    """Its proxy rewrites records meanwhile. The export has either the old or the new one."""
    target = _target(old, new)
    proxy = old.proxy()
    proxy.configure(old.settings("one", roll_after="1s"))
    proxy.start_ready()
    values = [b"%d" % number for number in range(300)]
    old.send(Outgoing(value, value, _asking(target)) for value in values)
    file = tmp_path / "pending.jsonl"
    wait_for(lambda: read_to_end(old.bootstrap, old.outcomes), WITHIN_S, "a rewriting")
    for _ in range(3):
        file.unlink(missing_ok=True)
        exported = old.call("export", str(file), "--json")
        assert (exported.code, exported.said["live"]) == (0, True), exported.err
        lines = map(json.loads, file.read_text().splitlines()[1:-1])
        assert Counter(b64decode(one["value"]) for one in lines) <= Counter(values)
    old.stop_proxies()
    file.unlink()
    stopped = old.call("export", str(file), "--json")
    assert (stopped.said["live"], stopped.said["records"]) == (False, len(values))


MANY = 100_000
FIRST_DUE_S, LAST_DUE_S = 60, 240
DELIVERED_WITHIN_S = 900.0
NOT_JUDGED = 3
"""Exit code of the old cluster's audit: its records are pending, and their due has passed."""


class Load:
    """Records of one second, written again and again by a thread until it is closed."""

    def __init__(self, home: Home, topic: str, name: str) -> None:
        self.values: list[bytes] = []
        self._home, self._topic, self._name = home, topic, name
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._is_over.is_set():
            some = [b"%s-%d" % (self._name.encode(), len(self.values) + n) for n in range(200)]
            self._home.send(Outgoing(one, one, _asking(self._topic, b"1s")) for one in some)
            self.values += some

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()


@pytest.mark.slow
def test_a_hundred_thousand_records_move_between_two_brokers_under_load(
    old: Home, far: Home, tmp_path: Path
) -> None:
    """The old proxy delivers until it stops. The new one delivers its own records during the
    import, which is killed several times. Each record is delivered once, by one of them."""
    target = _target(old, far)
    old.proxy().start_ready()
    load = Load(old, target, "old")
    now_ms = time.time_ns() // 1_000_000
    dues = [now_ms + random.randint(FIRST_DUE_S * 1000, LAST_DUE_S * 1000) for _ in range(MANY)]
    asked = [("timer-topic", target.encode())]
    old.send(
        Outgoing(b"%d" % n, b"%d" % n, [*asked, ("timer-deliver-at", b"%d" % due_ms)])
        for n, due_ms in enumerate(dues)
    )
    wait_for(lambda: time.time_ns() // 1_000_000 > now_ms + FIRST_DUE_S * 1000, WITHIN_S, "dues")
    load.close()
    old.stop_proxies()
    far.proxy().start_ready()
    beside = Load(far, target, "new")
    file = tmp_path / "pending.jsonl"
    exported = old.call("export", str(file), "--json")
    assert exported.code == 0, exported.err
    for wait_s in (3.0, 6.0, 9.0):
        importing = subprocess.Popen(far.command("import", str(file)), cwd=REPOSITORY)
        with suppress(subprocess.TimeoutExpired):
            importing.wait(wait_s)
        importing.kill()
        importing.wait()
    imported = far.call("import", str(file), "--json")
    assert imported.code == 0, imported.err
    beside.close()
    wanted = Counter([*(b"%d" % n for n in range(MANY)), *load.values, *beside.values])
    home = _by_value(old.delivered(target))
    assert home.total() + exported.said["records"] == MANY + len(load.values)
    left = wanted.total() - home.total()
    deliveries = partial(far.proxy().metric, "delay_proxy_deliveries_total")
    wait_for(lambda: deliveries() >= left, DELIVERED_WITHIN_S, "all to be delivered")
    far.stop_proxies()
    there = far.delivered(target)
    assert home + _by_value(there) == wanted
    assert all(one.timestamp_ms >= int(one.header("timer-due") or 0) for one in there)
    _audit(old, NOT_JUDGED, {"delivered": home.total(), "pending": exported.said["records"]})
    _audit(far, 0, {"delivered": len(there)})


def _audit(home: Home, code: int, wanted: dict[str, int]) -> None:
    """Compare the verdicts of the Spark audit. It reads the topics alone."""
    folder = home.proxy().folder / "audit"
    audited = home.call("audit", "--output", str(folder), "--json")
    verdicts = {name: count for name, count in audited.said["verdicts"].items() if count}
    assert (audited.code, verdicts) == (code, wanted), audited.out
