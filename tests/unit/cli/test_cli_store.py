"""`store` and `pending` read a stopped proxy's disk, and detect damage."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.cli.app import main
from proxy.cli.pending import count_entries
from proxy.cli.store import local_shards
from proxy.protocol.body import Content, delivery_of, packer, stub
from proxy.protocol.position import Position
from proxy.recovery.local_state import LocalState
from storage.opening import open_store
from storage.options import Options
from storage.store import Committed, Entry

NOW_MS = 1_000_000
DAY_MS = 86_400_000


WAITING: list[tuple[int, int, str, Content]] = [
    (
        NOW_MS + 5_000,
        0,
        "orders",
        (-1, b"k", b"v", [("timer-topic", b"orders"), ("a", b"\xff")]),
    ),
    (NOW_MS + 90_000, 1, "payments", (2, None, None, [])),
    (NOW_MS + 2 * DAY_MS, 2, "orders", (-1, b"k", b"w", [])),
]
ENTRIES: list[Entry] = [(*made[:3], packer()(made[3])) for made in WAITING]
DELIVERIES = [delivery_of(entry) for entry in ENTRIES]
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "timer.ingress-0@abc"
    options = Options(slots=1000)
    store = open_store("wheel", folder, Committed(-1, -1, 0, 0), options)
    store.put(ENTRIES)
    store.flush(3)
    store.close()
    (tmp_path / "timer.ingress-1@abc").mkdir()
    (tmp_path / "timer.ingress-0@abc.broken-1").mkdir()
    (tmp_path / "lock").touch()
    return tmp_path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], data_dir: Path) -> Call:
    def call_with(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--data-dir", str(data_dir)])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call_with


def test_shards_put_aside_are_not_shards(data_dir: Path) -> None:
    assert [shard.name for shard in local_shards(data_dir)] == [
        "timer.ingress-0",
        "timer.ingress-1",
    ]


def test_entries_are_read_as_they_were_put(data_dir: Path) -> None:
    assert list(local_shards(data_dir)[0].entries()) == DELIVERIES


def test_a_store_of_another_kind_reads_the_same(tmp_path: Path) -> None:
    state = LocalState(tmp_path, "timer.ingress", "abc", Options(), "rocksdb")
    store = state.open(0, Position.start(0, "digest", "id"))
    store.put(ENTRIES)
    store.flush(0)
    store.close()
    assert list(local_shards(tmp_path)[0].entries()) == []
    store = state.open(0, replace(Position.start(0, "digest", "id"), next_offset=3))
    store.put(ENTRIES)
    store.flush(3)
    store.close()
    shard = local_shards(tmp_path)[0]
    assert list(shard.entries()) == DELIVERIES
    assert shard.verify().pending_by_target == ({"orders": 2, "payments": 1}, 0)


def test_verify_is_content_with_sound_and_with_young_shards(call: Call) -> None:
    code, out, _ = call("store", "verify", "--json")
    first, second = json.loads(out)["shards"]
    assert code == 0
    assert first["pending_by_target"] == {"orders": 2, "payments": 1}
    assert (second["pending"], second["findings"]) == (0, [])
    assert "No shard is damaged." in call("store", "verify")[1]


def test_verify_ends_with_1_where_a_body_was_changed(call: Call, data_dir: Path) -> None:
    body = min(data_dir.rglob("*.body"))
    content = bytearray(body.read_bytes())
    content[-1] ^= 255
    body.write_bytes(content)
    code, out, _ = call("store", "verify")
    assert code == 1
    assert "1 of 2 shards are damaged." in out
    code, _, err = call("store", "dump")
    assert code == 1
    assert "it puts a damaged folder aside" in err


def test_dump_prints_each_entry_with_its_bytes_as_text(call: Call) -> None:
    code, out, _ = call("store", "dump", "--json")
    first, second, _ = map(json.loads, out.splitlines())
    assert code == 0
    assert first == {
        "shard": "timer.ingress-0",
        "offset": 0,
        "fires_ms": NOW_MS + 5_000,
        "target": "orders",
        "partition": None,
        "key": "k",
        "value": "v",
        "headers": {"timer-topic": "orders", "a": "\\xff"},
    }
    assert (second["partition"], second["key"], second["value"]) == (2, None, None)
    assert len(call("store", "dump", "--limit", "2")[1].splitlines()) == 2


def test_what_was_left_in_kafka_is_shown_by_its_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(
        "wheel", tmp_path / "timer.ingress-0@abc", Committed(-1, -1, 0, 0), Options(slots=9)
    )
    store.put([ENTRIES[0], (*ENTRIES[1][:3], stub(bytes(70_000)))])
    store.flush(2)
    store.close()
    said = []
    for arguments in (["store", "dump"], ["store", "dump", "--json"], ["store", "verify"]):
        with pytest.raises(SystemExit):
            main([*arguments, "--data-dir", str(tmp_path)])
        said.append(capsys.readouterr().out)
    assert said[0].splitlines()[1].endswith("timer.ingress-0/1  payments  70,000 bytes in Kafka")
    assert json.loads(said[1].splitlines()[1])["bytes_in_kafka"] == 70_000
    assert "No shard is damaged." in said[2]


def test_pending_on_disk_counts_by_target_and_by_due(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.cli.pending.wall_clock_ms", lambda: NOW_MS)
    out = call("pending", "--json")[1]
    assert json.loads(out) == {
        "pending": 3,
        "by_target": {"orders": 2, "payments": 1},
        "by_due": {"within a minute": 1, "within an hour": 1, "within a week": 1},
    }
    assert "3 records are pending." in call("pending")[1]
    monkeypatch.setattr("proxy.cli.pending.count_entries", lambda *_: ({"orders": 1}, {}))
    assert "1 record is pending." in call("pending")[1]


def test_a_due_at_the_edge_counts_to_the_nearer_span() -> None:
    dues_ms = (-1, 0, 60_000, 60_001, 8 * DAY_MS)
    body = packer()((-1, None, None, []))
    entries = [delivery_of((due_ms, 0, "t", body)) for due_ms in dues_ms]
    assert count_entries(entries, 0)[1] == {
        "overdue": 2,
        "within a minute": 1,
        "within an hour": 1,
        "later": 1,
    }


def test_a_folder_without_local_data_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["store", "verify", "--data-dir", str(tmp_path / "none")])
    assert ended.value.code == 1
    assert "There is no local data in" in capsys.readouterr().err


def test_the_folders_are_found_where_the_proxy_keeps_them(tmp_path: Path) -> None:
    state = LocalState(tmp_path, "timer.ingress", "FZw3CtNtRsS-DD", Options(slots=1000))
    state.open(3, Position.start(0, "digest", "id")).close()
    assert [shard.name for shard in local_shards(tmp_path)] == ["timer.ingress-3"]
