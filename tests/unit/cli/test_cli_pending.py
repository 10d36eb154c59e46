"""`pending list` and `find` with fake instances."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proxy.admin.server import AdminServer
from proxy.cli import pending
from proxy.cli.admin_port import Instances
from proxy.config.settings import AdminSettings
from tests.support.simulation.admin_api import INGRESS, MadeUpApi

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _broker_is_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pending, "BROKER_LIMIT_S", 0.1)


@pytest.fixture
def admin() -> Iterator[str]:
    made = MadeUpApi(AdminSettings(port=0))
    server = AdminServer(made.site)
    with closing(server):
        yield f"127.0.0.1:{server.port}"


def test_what_waits_is_listed_over_all_instances_in_the_order_of_firing(
    call: Call, admin: str
) -> None:
    code, out, _ = call("pending", "list", "--admin", admin, "--admin", f"http://{admin}", "--json")
    said = json.loads(out)
    assert code == 1  # the broker is away, so partitions may be missing
    assert [one["origin"] for one in said["records"][:4]] == [
        f"{INGRESS}/0/1",
        f"{INGRESS}/0/1",
        f"{INGRESS}/1/1",
        f"{INGRESS}/1/1",
    ]
    assert (len(said["records"]), said["more"], said["partitions"]) == (12, False, [0, 1, 2])
    assert (said["partitions_missing"], said["silent"]) == (None, {})


def test_no_more_are_listed_than_asked_for_and_whether_there_are_more_is_said(
    call: Call, admin: str
) -> None:
    _, out, _ = call("pending", "list", "--admin", admin, "--limit", "2")
    assert "2 records. There are more: raise --limit. Partitions covered: 0, 1, 2." in out
    assert f"{INGRESS}/1/1" in out
    assert f"{INGRESS}/0/2" not in out
    assert "The broker does not answer" not in out  # the instance says that it is complete


def test_partitions_that_no_instance_serves_are_named(
    call: Call, admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "missing_partitions", lambda _, covered: [*{3, 4} - covered])
    for command in (["pending", "list"], ["pending"], ["find", "--id", "unknown"]):
        code, out, _ = call(*command, "--admin", admin, "--admin", f"http://{admin}")
        assert (code, "Not covered: 3, 4." in out) == (1, True)


def test_with_peers_missing_partitions_are_taken_over_and_nobody_is_to_be_named(
    call: Call, admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "missing_partitions", lambda *_: [0, 1])
    monkeypatch.setenv("DELAY_PROXY_ADMIN__PEERS", '["http://127.0.0.1:2"]')
    with monkeypatch.context() as patch:
        left = {"by_target": {"orders": 7}, "others": 0, "partitions": [2, 3], "unanswered": []}
        patch.setattr(Instances, "ask_one", lambda *_, **__: {**left, "complete": False})
        code, out, _ = call("pending", "--admin", admin)
    assert code == 1
    assert "At least 7 records are pending." in out
    assert "Not covered: 0, 1. An instance has ended, or these partitions move or recover." in out
    _, out, _ = call("pending", "--admin", admin, "--admin", f"http://{admin}")
    assert "Not covered: 0, 1. Name every instance with --admin." in out


@pytest.mark.parametrize("command", [["pending", "list"], ["pending"], ["find", "--id", "known"]])
@pytest.mark.parametrize(("missing", "code"), [([], 0), (None, 1)])
def test_the_exit_code_is_0_only_if_the_answer_is_known_to_be_complete(
    call: Call,
    admin: str,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    missing: list[int] | None,
    code: int,
) -> None:
    monkeypatch.setattr(pending, "missing_partitions", lambda *_: missing)
    assert call(*command, "--admin", admin, "--admin", f"http://{admin}")[0] == code
    monkeypatch.setattr(pending, "missing_partitions", pytest.fail)
    assert call(*command, "--admin", admin)[0] == 0  # one instance says that it is complete


def test_how_many_wait_is_the_sum_over_all_instances(call: Call, admin: str) -> None:
    both = ("--admin", admin, "--admin", f"http://{admin}", "--admin", "127.0.0.1:1")
    code, out, err = call("pending", *both, "--json")
    said = json.loads(out)
    assert (code, said["pending"], said["by_target"]) == (1, 18, {"bills": 10, "orders": 8})
    assert (said["others"], said["partitions"]) == (0, [0, 1, 2])
    assert said["partitions_twice"] == [0, 1, 2]
    assert (said["partitions_missing"], [*said["silent"]]) == (None, ["127.0.0.1:1"])
    assert "The answer is not complete." in err
    shown = call("pending", *both)[1]
    assert "At least 18 records are pending. Partitions covered: 0, 1, 2." in shown
    assert "Counted more than once: 0, 1, 2. Is an instance named twice" in shown
    once = call("pending", "--admin", admin)[1]
    assert ("9 records are pending." in once, "more than once" in once) == (True, False)


def test_without_a_served_partition_no_count_is_shown(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = {"by_target": {}, "others": 0, "partitions": [], "complete": False, "unanswered": []}
    monkeypatch.setattr(Instances, "ask_one", lambda *_, **__: away)
    code, out, err = call("pending")
    assert (code, "0 records" in out, "it is not known how many" in out) == (1, False, True)
    assert "The answer is not complete." in err


def test_an_instance_that_does_not_answer_is_named_and_the_others_are_shown(
    call: Call, admin: str
) -> None:
    code, out, err = call("pending", "list", "--admin", "127.0.0.1:1", "--admin", admin, "--json")
    said = json.loads(out)
    assert (code, len(said["records"]), [*said["silent"]]) == (1, 6, ["127.0.0.1:1"])
    assert "The answer is not complete. No proxy answers at http://127.0.0.1:1" in err


def test_a_filter_that_cannot_be_read_is_said_with_the_reason(call: Call, admin: str) -> None:
    code, _, err = call("pending", "list", "--admin", admin, "--from", "soon")
    assert code == 2
    assert "'soon' is not a time" in err


def test_a_record_is_found_by_its_id_at_whichever_instance(call: Call, admin: str) -> None:
    code, out, _ = call("find", "--id", "known", "--admin", admin, "--json")
    said = json.loads(out)
    assert (code, [one["origin"] for one in said["records"]]) == (0, [f"{INGRESS}/1/7"])
    assert said["partitions"] == [0, 1, 2]
    code, out, _ = call("find", "--id", "unknown", "--admin", admin)
    assert (code, out.startswith("No pending record matches. Partitions covered: 0, 1, 2.\n")) == (
        0,
        True,
    )
    _, out, _ = call("find", "--id", "known", "--target", "bills", "--admin", admin)
    assert out.startswith("No pending record matches.")


def test_a_record_is_found_by_its_origin_with_what_it_holds(call: Call, admin: str) -> None:
    _, out, _ = call("find", "--origin", f"{INGRESS}/0/5", "--body", "--admin", admin, "--json")
    (found,) = json.loads(out)["records"]
    assert (found["state"], found["value"], found["headers"]) == ("ended", None, [])
    _, out, _ = call("find", "--origin", f"{INGRESS}/0/5", "--admin", admin)
    assert "ended" in out


@pytest.mark.parametrize("by", [("--id", "known"), ("--origin", f"{INGRESS}/0/5")])
def test_the_column_of_the_sizes_is_left_out_if_no_answer_has_a_size(
    call: Call, admin: str, by: tuple[str, str]
) -> None:
    assert " bytes " not in call("find", *by, "--admin", admin)[1]
    assert " bytes " in call("find", "--target", "*", "--admin", admin)[1]


def test_without_id_and_origin_find_lists_by_target_and_time(call: Call, admin: str) -> None:
    _, out, _ = call("find", "--target", "orders", "--admin", admin, "--json")
    assert json.loads(out)["partitions"] == [0, 1, 2]
    assert call("find", "--admin", admin)[0] == 2


@pytest.mark.parametrize("origin", ["orders/0/0", f"{INGRESS}/77/0", f"{INGRESS}/0/99999"])
def test_an_origin_that_no_instance_knows_is_an_error(call: Call, admin: str, origin: str) -> None:
    code, out, err = call("find", "--origin", origin, "--admin", admin)
    assert (code, out) == (1, "")
    assert err.startswith(
        f"Error: {origin} is pending at none of the asked instances. Check the origin "
    )
