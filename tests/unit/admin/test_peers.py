"""Any instance answers for the whole group. A peer that misbehaves is named, and nothing else."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from proxy.admin import peers as peers_module
from proxy.admin.broker_access import IngressFacts
from proxy.admin.peers import Place
from proxy.admin.server import AdminServer
from proxy.config.settings import AdminSettings, AdminToken
from proxy.telemetry.status import Status
from tests.support.simulation.admin_api import MadeUpApi

LIMIT_S = 60.0
TOKEN = "a-token-nobody-guesses"
PARTITIONS = 6


class Instance(MadeUpApi):
    """A real admin port of an instance with three partitions of six."""

    def __init__(self, name: str, first: int, settings: AdminSettings | None = None) -> None:
        super().__init__(settings or AdminSettings(port=0), instance=name)
        self.first, self.cluster = first, "a-cluster"
        self.broker.ingress = lambda: IngressFacts(  # type: ignore[method-assign]
            self.cluster, PARTITIONS
        )
        self.server = AdminServer(self.site)

    def statuses(self) -> list[Status]:
        return [
            replace(
                status,
                shards=tuple(
                    replace(shard, partition=shard.partition + self.first)
                    for shard in status.shards
                ),
            )
            for status in super().statuses()
        ]

    def lead_to(self, *urls: str) -> None:
        """Set the peers, as if the settings had named them."""
        self.site.peers._settings = self.site.settings.model_copy(
            update={"admin": self.site.settings.admin.model_copy(update={"peers": list(urls)})}
        )
        self.site.peers._resolved_s = float("-inf")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def get(self, path: str, method: str = "GET", body: object = None, **headers: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=LIMIT_S)
        with closing(connection):
            said = None if body is None else json.dumps(body)
            kind = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, f"/api/v1{path}", said, {**kind, **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


@pytest.fixture
def group() -> Iterator[tuple[Instance, Instance]]:
    with two_instances() as made:
        yield made


@contextmanager
def two_instances(
    of_one: AdminSettings | None = None, of_other: AdminSettings | None = None
) -> Iterator[tuple[Instance, Instance]]:
    one, other = Instance("one", 0, of_one), Instance("other", 3, of_other)
    with closing(one.server), closing(other.server):
        one.lead_to(one.url, other.url)
        other.lead_to(one.url, other.url)
        yield one, other


def test_any_instance_counts_the_records_of_all(group: tuple[Instance, Instance]) -> None:
    for asked in group:
        code, said = asked.get("/pending")
        assert (code, said["pending"], said["by_target"]) == (200, 18, {"bills": 10, "orders": 8})
        assert said["partitions"] == [0, 1, 2, 3, 4, 5]
        assert (said["complete"], said["unanswered"]) == (True, [])
        assert asked.get("/half-messages")[1]["by_partition"]["5"] == 2
        assert sum(one["pending"] for one in asked.get("/pending/by-time?within=1h")[1]["buckets"])


def test_an_instance_answers_for_itself_if_it_is_told_to(
    group: tuple[Instance, Instance],
) -> None:
    said = group[0].get("/pending", **{"Delay-Proxy-Scope": "instance"})[1]
    assert (said["pending"], said["partitions"]) == (9, [0, 1, 2])
    assert "complete" not in said


def test_all_instances_are_shown_with_their_totals(group: tuple[Instance, Instance]) -> None:
    group[0].is_disk_full = True
    _, said = group[1].get("/instances")
    assert [one["name"] for one in said["instances"]] == ["other", "one"]
    assert [one["disk_full"] for one in said["instances"]] == [False, True]
    assert [one["pending"] for one in said["instances"]] == [9, 9]
    assert (said["pending"], said["complete"], said["cluster"]) == (18, True, "a-cluster")
    assert (said["partitions_missing"], said["unanswered"]) == ([], [])


def test_a_record_is_found_at_the_instance_that_has_it(group: tuple[Instance, Instance]) -> None:
    one, other = group
    for asked in group:
        for partition in (1, 4):
            assert asked.get(f"/records/timer.ingress/{partition}/5")[0] == 200
        assert asked.get("/records/timer.ingress/6/5")[1]["error"] == "not-served-here"
    body = {"deliver_at": "2100-01-01T00:00:00Z"}
    code, said = one.get("/records/timer.ingress/5/5", "PATCH", body)
    assert (code, said["moves"]) == (202, "timer.ingress/5/5")
    assert (len(one.broker.moves), len(other.broker.moves)) == (0, 1)
    assert [len(each.broker.changes) for each in group] == [1, 1]


def test_a_purge_counts_the_records_of_all_and_is_written_once(
    group: tuple[Instance, Instance],
) -> None:
    one, other = group
    body = {"targets": "bills", "dry_run": True}
    assert one.get("/purges", "POST", body)[1]["records"] == 10
    code, said = one.get("/purges", "POST", {**body, "dry_run": False})
    assert (code, said["records"], said["applied"]) == (200, 10, True)
    assert (len(one.broker.purges), len(other.broker.purges)) == (1, 0)


def test_a_dead_instance_is_named_and_the_totals_are_incomplete(
    group: tuple[Instance, Instance],
) -> None:
    one, other = group
    assert one.get("/pending")[1]["complete"]
    other.server.close()
    said = one.get("/pending")[1]
    assert (said["pending"], said["complete"], said["partitions"]) == (9, False, [0, 1, 2])
    (silent,) = said["unanswered"]
    assert silent["instance"] == f"other (127.0.0.1:{other.server.port})"
    assert one.get("/records?id=nowhere")[0] == 503
    assert one.get("/records/timer.ingress/4/5")[1]["error"] == "unanswered"
    said = one.get("/instances")[1]
    assert (said["complete"], said["partitions_missing"]) == (False, [3, 4, 5])


def test_a_partition_that_two_instances_serve_makes_totals_incomplete(
    group: tuple[Instance, Instance],
) -> None:
    group[1].first = 2
    said = group[0].get("/pending")[1]
    assert (said["complete"], said["partitions"]) == (False, [0, 1, 2, 3, 4])


def test_a_member_of_the_group_that_no_peer_leads_to_is_named() -> None:
    one = Instance("one", 0)
    one.broker.instances = lambda: {"one", "lost"}  # type: ignore[method-assign]
    with closing(one.server):
        until_s = time.monotonic() + LIMIT_S
        while not (silent := one.get("/pending")[1]["unanswered"]) and time.monotonic() < until_s:
            continue
    assert [each["instance"] for each in silent] == ["lost"]


def test_a_peer_of_another_group_or_cluster_does_not_count_and_changes_nothing(
    group: tuple[Instance, Instance],
) -> None:
    one, other = group
    other.cluster = "another"
    said = one.get("/pending")[1]
    assert (said["pending"], said["complete"]) == (9, False)
    assert "another" in said["unanswered"][0]["reason"]
    code, _ = one.get("/records/timer.ingress/5/5", "PATCH", {"deliver_at": 4_102_444_800_000})
    assert (code, other.broker.moves) == (503, [])


def test_peers_check_the_callers_own_right(tmp_path: Any) -> None:
    (tmp_path / "viewer").write_text(TOKEN)
    tokens = {"viewer": AdminToken(role="viewer", file=tmp_path / "viewer")}
    settings = AdminSettings(port=0, tokens=tokens)
    with two_instances(settings, settings) as (one, _):
        shown = {"Authorization": f"Bearer {TOKEN}"}
        assert one.get("/pending", **shown)[1]["pending"] == 18
        assert one.get("/records/timer.ingress/4/5", **shown)[0] == 200
        assert one.get("/records/timer.ingress/4/5?body=true", **shown)[0] == 403
        assert one.get("/records/timer.ingress/4/5", "PATCH", {"deliver_at": 1}, **shown)[0] == 403


def test_a_peer_that_does_not_know_the_token_is_asked_no_more_for_a_while() -> None:
    other = AdminSettings(port=0, token="another-token-nobody-guesses")
    with two_instances(AdminSettings(port=0, token=TOKEN), other) as (one, peer):
        for _ in range(20):
            said = one.get("/pending", Authorization=f"Bearer {TOKEN}")[1]
            assert (said["complete"], "token" in said["unanswered"][0]["reason"]) == (False, True)
        assert [count for count, _ in peer.server.app._wrong_tokens._counted.values()] == [1]


def hostile(answer: Callable[[socket.socket], object]) -> tuple[str, list[bytes], socket.socket]:
    """Return the URL of a server that answers each connection, the requests, and its socket."""
    listener, heard = socket.create_server(("127.0.0.1", 0)), list[bytes]()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                heard.append(connection.recv(65_536))
                try:
                    answer(connection)
                except OSError:
                    continue

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}", heard, listener


def head(length: int = 0, status: str = "200 OK", more: str = "") -> bytes:
    named = "delay-proxy-instance: x/y\r\ndelay-proxy-group: a-cluster/delay-proxy\r\n"
    return f"HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{named}{more}\r\n".encode()


def endless(connection: socket.socket) -> None:
    connection.sendall(head(10_000_000_000))
    while True:
        connection.sendall(b" " * 65_536)


def dripping(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"H")
        threading.Event().wait(0.01)


GARBAGE: dict[str, Callable[[socket.socket], object]] = {
    "nothing": lambda _: None,
    "no HTTP": lambda connection: connection.sendall(b"SSH-2.0-OpenSSH\r\n"),
    "no proxy": lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n{}"),
    "no JSON": lambda connection: connection.sendall(head(3) + b"no!"),
    "other JSON": lambda connection: connection.sendall(head(2) + b"{}"),
    "wrong types": lambda connection: connection.sendall(
        head(64) + b'{"pending":-1,"by_target":{},"others":0,"partitions":[3,4,5]}   '
    ),
    "10 GB": endless,
    "never": lambda _: threading.Event().wait(3),
    "drop by drop": dripping,
}


@pytest.mark.parametrize("what", GARBAGE)
def test_a_peer_that_answers_anything_else_is_named_in_time(
    what: str,
) -> None:
    url, _, listener = hostile(GARBAGE[what])
    one = Instance("one", 0)
    with closing(one.server), closing(listener):
        one.lead_to(url)
        silent = one.site.peers.ask(_nobody(), "GET", "/api/v1/x", within_s=0.5).silent
        assert len(silent) <= 1
        assert what == "never" or len(one.get("/pending")[1]["unanswered"]) == 1


def _nobody() -> Any:
    return peers_module.Asker({})


def test_a_redirect_is_not_followed() -> None:
    elsewhere, heard_elsewhere, other = hostile(lambda _: None)
    to = f"location: {elsewhere}/\r\n"
    url, heard, listener = hostile(lambda connection: connection.sendall(head(0, "307 T", to)))
    one = Instance("one", 0, AdminSettings(port=0, token=TOKEN))
    with closing(one.server), closing(listener), closing(other):
        one.lead_to(url)
        said = one.get("/pending", Authorization=f"Bearer {TOKEN}")[1]
    assert (said["complete"], len(said["unanswered"]), heard_elsewhere) == (False, 1, [])
    assert TOKEN.encode() in heard[0]


def test_a_name_without_an_address_is_named() -> None:
    one = Instance("one", 0)
    with closing(one.server):
        one.lead_to("http://no-such-name.invalid:9464")
        said = one.get("/pending")[1]
    assert [each["instance"] for each in said["unanswered"]] == ["http://no-such-name.invalid:9464"]


def test_a_name_with_several_addresses_stands_for_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ExitStack() as kept:
        one = Instance("one", 0)
        kept.enter_context(closing(one.server))
        monkeypatch.setattr(peers_module, "addresses_of", lambda *_: ["127.0.0.1", "127.0.0.2"])
        one.lead_to(f"http://pods.example:{one.server.port}")
        silent = one.site.peers.ask(_nobody(), "GET", "/api/v1/pending").silent
        assert one.site.peers._own == {
            Place(f"http://pods.example:{one.server.port}", "127.0.0.1", one.server.port)
        }
    assert list(silent) == [f"127.0.0.2:{one.server.port}"]


def test_the_page_shows_all_instances_and_who_is_silent(group: tuple[Instance, Instance]) -> None:
    one, other = group
    whole = one.site.events.gather(
        json.loads(json.dumps(one.site.events.make())), peers_module.Asker({})
    )
    assert (whole["pending"], whole["shard_count"], whole["complete"]) == (18, 6, True)
    assert (whole["by_time"]["overdue"], len(whole["by_time"]["hour"])) == (3, 12)
    other.server.close()
    whole = one.site.events.gather(one.site.events.make(), peers_module.Asker({}))
    assert (whole["pending"], whole["complete"], len(whole["unanswered"])) == (9, False, 1)
