"""`turns`: what the command says of the loops, draws and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from proxy import extras
from proxy.admin.server import AdminServer
from proxy.config.settings import AdminSettings
from tests.support.simulation.admin_api import MadeUpApi

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def admin() -> Iterator[str]:
    """An admin port; the longest turn of worker 0 was late for what its fetch did, worker 1
    starts."""
    made = MadeUpApi(AdminSettings(port=0))
    loop = made.workers.loop
    for number in range(40):
        loop.turn(fetched=100, ended=90, fetch=0.05, may_wait=0.05, put=0.001 * number, look=0.01)
    loop.turn(fetch=0.55, may_wait=0.05, tidy=0.25, cpu=0.1)
    loop.turn(put=0.001)
    server = AdminServer(made.settings, CollectorRegistry(), made.statuses, made.api)
    with closing(server):
        yield f"127.0.0.1:{server.port}"


def test_the_steps_and_the_longest_turns_are_told_by_worker(call: Call, admin: str) -> None:
    code, out, _ = call("turns", "--admin", admin)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith(f"{admin} worker 0: 43 turns in ")
    assert "4,000 records fetched, 3,600 ended; now: other, for 0.0 ms" in lines[0]
    (put,) = (line.split() for line in lines if line.startswith("put "))
    assert (put[1], put[-1]) == ("40", "39.0")
    longest = lines[lines.index("The longest, without waiting for a record:") + 2]
    assert longest.endswith("fetch 500.0, tidy 250.0")
    assert longest.split()[-8:-4] == ["750.0", "100.0", "0", "0"]
    assert f"{admin} worker 1: It says nothing" in out


def test_instances_that_do_not_answer_are_named_beside_the_others(call: Call, admin: str) -> None:
    code, out, _ = call("turns", "--admin", admin, "--admin", "127.0.0.1:1", "--json")
    said = json.loads(out)
    assert code == 0
    assert [worker["name"] for worker in said["workers"]] == [f"{admin} worker 0"]
    assert set(said["silent"]) == {f"{admin} worker 1", "127.0.0.1:1"}
    assert said["workers"][0]["longest"][0]["busy_ms"] == pytest.approx(750.0)


def test_the_minute_is_drawn_and_its_longest_turns_are_named(
    call: Call, admin: str, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "turns.svg"
    assert call("turns", "--admin", admin, "--plot", str(picture), "--json")[0] == 0
    drawn = picture.read_text()
    assert "<!-- fetch 500.0 -->" in drawn, "the longest turn, by its longest step"
    assert f"{admin} worker 0" in drawn


def test_a_picture_of_another_kind_or_where_no_folder_is_gets_refused_in_a_sentence(
    call: Call, admin: str, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    code, out, err = call("turns", "--admin", admin, "--plot", "turns.gif")
    assert (code, out) == (2, "")
    assert ".svg, .png, .pdf" in err
    code, _, err = call("turns", "--admin", admin, "--plot", str(tmp_path / "no" / "turns.svg"))
    assert code == 1
    assert "cannot be written" in err
    assert "No such file or directory" in err


def test_without_matplotlib_it_is_said_what_to_install_before_anybody_is_asked(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "matplotlib" else name)
    code, out, err = call("turns", "--admin", "127.0.0.1:1", "--plot", "turns.svg")
    assert (code, out) == (1, "")
    assert err == (
        "Error: `turns --plot` needs matplotlib, which is not installed. "
        "Install it: pip install 'kafka-delay-proxy[spark]'.\n"
    )
