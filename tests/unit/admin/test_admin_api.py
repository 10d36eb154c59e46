"""The calls of the admin API, with fake workers and a fake broker."""

import json

import pytest

from proxy.admin import records, targets
from proxy.admin.problem import Problem
from proxy.admin.queries import FindId, FindRecord, MailboxFull, NoAnswer, PendingByTime
from proxy.config.settings import AdminSettings
from tests.support.simulation.admin_api import MadeUpApi

WHOLE = {"complete": True, "unanswered": []}


def test_pending_records_are_counted_by_target_over_all_workers() -> None:
    assert MadeUpApi().ask("/pending") == (
        200,
        {
            "pending": 9,
            "by_target": {"bills": 5, "orders": 4},
            "others": 0,
            "partitions": [0, 1, 2],
            **WHOLE,
        },
    )


def test_of_very_many_targets_those_with_most_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "TARGETS_SHOWN", 1)
    _, said = MadeUpApi().ask("/pending")
    assert (said["pending"], said["by_target"], said["others"]) == (9, {"bills": 5}, 4)


def test_pending_records_are_counted_in_the_buckets_asked_for_from_short_to_long() -> None:
    made = MadeUpApi()
    code, said = made.ask("/pending/by-time?within=1h,30s")
    assert code == 200
    assert [(b["within"], b["pending"]) for b in said["buckets"]] == [
        ("30s", 3),
        ("1h", 3),
        (None, 3),
    ]
    assert said["partitions"] == [0, 1, 2]
    edges_ms = (said["now"] + 30_000, said["now"] + 3_600_000)
    some_at_a_time = [(0, 1, 2), (1, 2), (2,)]
    assert made.workers.asked == [PendingByTime(edges_ms, left) for left in some_at_a_time]


def test_what_was_cancelled_or_is_held_by_a_pause_is_told_beside_the_buckets() -> None:
    made = MadeUpApi()
    _, said = made.ask("/pending/by-time")
    assert (said["cancelled"], said["paused"]) == (3, 0)
    made.broker.paused = {"ord*", "nothing-*"}
    assert made.ask("/pending/by-time")[1]["paused"] == 4
    made.broker.paused.add("*")
    assert made.ask("/pending/by-time")[1]["paused"] == 9


def test_undecided_half_messages_are_counted_by_partition() -> None:
    _, said = MadeUpApi().ask("/half-messages")
    assert said == {"undecided": 3, "by_partition": {"0": 0, "1": 1, "2": 2}, **WHOLE}


def test_a_record_is_found_by_its_id() -> None:
    made = MadeUpApi()
    code, said = made.ask("/records?id=known")
    assert code == 200
    assert said["records"] == [
        {
            "origin": "timer.ingress/1/7",
            "id": "known",
            "state": "pending",
            "target": "orders",
            "due": 5,
            "fires": 6,
        }
    ]
    assert made.ask("/records?id=%C3%A9")[0] == 404
    assert made.workers.asked[-1] == FindId("é".encode())


def test_a_record_is_found_by_where_it_lies() -> None:
    made = MadeUpApi()
    code, said = made.ask("/records/timer.ingress/2/5")
    assert (code, said["origin"], said["state"]) == (200, "timer.ingress/0/5", "ended")
    (query,) = made.workers.asked
    assert isinstance(query, FindRecord)
    record = query.record
    assert (record.partition(), record.offset(), record.headers()) == (2, 5, None)


def test_a_record_is_shown_with_what_it_holds_if_that_is_asked_for() -> None:
    made = MadeUpApi()
    assert "value" not in made.ask("/records/timer.ingress/2/5?body=false")[1]
    code, said = made.ask("/records/timer.ingress/2/5?body=true")
    assert (code, said["state"], said["key"], said["value"]) == (200, "ended", None, None)
    assert (said["headers"], said["headers_left_out"]) == ([], 0)


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("timer.ingress/0/10", "not-read-yet"),
        ("timer.ingress/3/1", "not-served-here"),
        ("other/0/1", "not-served-here"),
        ("timer.ingress/0/0", "not-found"),
    ],
)
def test_a_record_that_cannot_be_found_says_why(
    place: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "STATUS_OLD_S", 0.0)
    code, said = MadeUpApi().ask(f"/records/{place}")
    assert (code, said["error"]) == (404, error)


def test_a_record_just_read_is_found_though_the_status_is_a_moment_old() -> None:
    made = MadeUpApi()
    made.next_offsets = [10, 11]
    assert made.ask("/records/timer.ingress/0/10")[0] == 200
    assert made.next_offsets == [11]


def test_a_cancel_is_written_and_says_where_it_lies() -> None:
    made = MadeUpApi()
    assert made.ask("/cancellations", "POST", {"id": "a", "partition": 2}) == (
        202,
        {"id": "a", "origin": "timer.ingress/2/9", "outcome": None, "detail": None},
    )
    made.ask("/cancellations", "POST", {"id": "a", "partition": 2.0})
    assert made.broker.cancels == [(b"a", None, 2)] * 2


def test_a_recall_is_written_to_the_partition_of_its_record() -> None:
    made = MadeUpApi()
    recalled = {"recalls": "timer.ingress/2/5", "origin": "timer.ingress/2/9"}
    said = {**recalled, "outcome": None, "detail": None}
    assert made.ask("/records/timer.ingress/2/5", "DELETE") == (202, said)
    said = {**recalled, "outcome": "applied", "detail": ""}
    assert made.ask("/records/timer.ingress/2/5?wait=5s", "DELETE") == (200, said)
    assert made.broker.recalls == [(2, "timer.ingress/2/5")] * 2


def test_a_cancel_that_is_waited_for_says_what_became_of_it() -> None:
    made = MadeUpApi()
    code, said = made.ask("/cancellations?wait=5s", "POST", {"id": "a", "key": "k"})
    assert (code, said["outcome"]) == (200, "applied")
    assert made.broker.cancels == [(b"a", b"k", None)]


def test_a_cancel_goes_to_where_its_id_is_known_to_wait() -> None:
    made = MadeUpApi()
    made.ask("/cancellations", "POST", {"id": "known"})
    made.ask("/cancellations", "POST", {"id": "known", "key": "k"})
    made.ask("/cancellations", "POST", {"id": "unknown"})
    assert made.broker.cancels == [
        (b"known", None, 1),
        (b"known", b"k", None),
        (b"unknown", None, None),
    ]


def test_a_cancel_is_not_written_to_a_guessed_partition_while_a_worker_is_silent() -> None:
    made = MadeUpApi()
    made.workers.refusal = NoAnswer()
    code, said = made.ask("/cancellations", "POST", {"id": "known"})
    assert (code, said["error"]) == (503, "no-answer")
    assert made.broker.cancels == []
    assert made.ask("/cancellations", "POST", {"id": "known", "key": "k"})[0] == 202


def test_a_cancel_of_an_id_that_waits_in_several_partitions_needs_to_name_one() -> None:
    made = MadeUpApi()
    code, said = made.ask("/cancellations", "POST", {"id": "twice"})
    assert (code, said["error"]) == (409, "ambiguous")
    assert made.ask("/cancellations", "POST", {"id": "twice", "partition": 1})[0] == 202


def test_what_the_broker_refuses_is_said_as_it_is() -> None:
    made = MadeUpApi()
    made.broker.refusal = Problem(503, "broker", "The broker is away.")
    said = {"error": "broker", "detail": "The broker is away."}
    assert made.ask("/cancellations", "POST", {"id": "a"}) == (503, said)


def test_pauses_are_made_listed_and_lifted() -> None:
    made = MadeUpApi()
    assert made.ask("/pauses/orders-%2A", "PUT") == (
        200,
        {"pattern": "orders-*", "paused": True, "per_second": None, "in_force": True},
    )
    assert made.ask("/pauses") == (200, {"paused": ["orders-*"], "release_rates": {}})
    assert made.ask("/pauses/orders-*", "DELETE")[0] == 200
    assert made.ask("/pauses") == (200, {"paused": [], "release_rates": {}})


def test_a_pause_that_a_worker_has_not_noticed_in_time_is_accepted_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "NOTICED_WITHIN_S", 0.01)
    made = MadeUpApi()
    made.broker.is_noticed = False
    code, said = made.ask("/pauses/orders", "PUT")
    assert (code, said["in_force"]) == (202, False)


def test_the_log_level_is_changed_for_all_workers() -> None:
    made = MadeUpApi()
    assert made.ask("/log-level") == (200, {"level": "info"})
    assert made.ask("/log-level", "PUT", {"level": "debug"}) == (200, {"level": "debug"})
    assert made.workers.level == "debug"
    assert made.ask("/log-level") == (200, {"level": "debug"})


@pytest.mark.parametrize(("refusal", "error"), [(NoAnswer(), "no-answer"), (MailboxFull(), "busy")])
def test_a_worker_that_does_not_answer_is_a_503(refusal: Exception, error: str) -> None:
    made = MadeUpApi()
    made.workers.refusal = refusal
    code, said = made.ask("/pending/by-time")
    assert (code, said["error"]) == (503, error)


def test_a_defect_is_said_to_be_one() -> None:
    made = MadeUpApi()
    made.workers.refusal = RuntimeError("oh")
    code, said = made.ask("/pending/by-time")
    assert (code, said["error"]) == (500, "defect")


@pytest.mark.parametrize(
    ("method", "url", "body", "code", "word"),
    [
        ("GET", "/nothing", None, 404, "no-such-path"),
        ("GET", "/pauses/a/b", None, 404, "no-such-path"),
        ("POST", "/pending", {}, 405, "method-not-allowed"),
        ("BREW", "/pauses/a", None, 405, "method-not-allowed"),
        ("GET", "/pending?by=target", None, 400, "bad-request"),
        ("GET", "/pending?", None, 200, ""),
        ("GET", "/pending/by-time?within=soon", None, 400, "bad-request"),
        ("GET", "/pending/by-time?within=", None, 400, "bad-request"),
        ("GET", "/pending/by-time?within=1s&within=2s", None, 400, "bad-request"),
        ("GET", "/pending/by-time?within=" + ",".join(["1s"] * 51), None, 400, "bad-request"),
        ("GET", "/pending/by-time?within=9999999d", None, 400, "bad-request"),
        ("GET", "/records", None, 400, "bad-request"),
        ("GET", "/records?id=", None, 400, "bad-request"),
        ("GET", "/records?id=" + "x" * 257, None, 400, "bad-request"),
        ("GET", "/records?id=%FF", None, 400, "bad-request"),
        ("GET", "/records?" + "&".join("abcdefghijklmnopqrstuvw"), None, 400, "bad-request"),
        ("GET", "/records/timer.ingress/00/1", None, 400, "bad-request"),
        ("GET", "/records/timer.ingress/0/1?body=yes", None, 400, "bad-request"),
        ("GET", "/records/timer.ingress/0/-1", None, 400, "bad-request"),
        ("GET", "/records/timer.ingress/0/" + "9" * 30, None, 400, "bad-request"),
        ("DELETE", "/records/timer.ingress/0/x", None, 400, "bad-request"),
        ("DELETE", "/records/timer.ingress/0/05", None, 400, "bad-request"),
        ("DELETE", "/records/orders/0/5", None, 404, "not-found"),
        ("DELETE", "/records/timer.ingress/0/5?wait=1h", None, 400, "bad-request"),
        ("POST", "/cancellations", b"{", 400, "bad-request"),
        ("POST", "/cancellations", b"\xff", 400, "bad-request"),
        ("POST", "/cancellations", [], 400, "bad-request"),
        ("POST", "/cancellations", {}, 400, "bad-request"),
        ("POST", "/cancellations", {"id": ""}, 400, "bad-request"),
        ("POST", "/cancellations", {"id": "é" * 200}, 400, "bad-request"),
        ("POST", "/cancellations", b'{"id": "\\ud800"}', 400, "bad-request"),
        ("POST", "/cancellations", {"id": 7}, 400, "bad-request"),
        ("POST", "/cancellations", {"id": "a", "partition": -1}, 400, "bad-request"),
        ("POST", "/cancellations", {"id": "a", "partition": True}, 400, "bad-request"),
        ("POST", "/cancellations", {"id": "a", "partition": 2**31}, 400, "bad-request"),
        ("POST", "/cancellations", {"id": "a", "topic": "b"}, 400, "bad-request"),
        ("POST", "/cancellations?wait=1h", {"id": "a"}, 400, "bad-request"),
        ("POST", "/cancellations", None, 415, "unsupported-type"),
        ("PUT", "/pauses/%2F", None, 400, "bad-request"),
        ("PUT", "/pauses/%FF", None, 400, "bad-request"),
        ("DELETE", "/pauses/" + "x" * 250, None, 400, "bad-request"),
        ("PUT", "/log-level", {"level": "loud"}, 400, "bad-request"),
        ("PUT", "/log-level", {"level": ["info"]}, 400, "bad-request"),
    ],
)
def test_what_is_wrong_with_a_call_is_said_cleanly(
    method: str, url: str, body: object, code: int, word: str
) -> None:
    made = MadeUpApi()
    found, said = made.ask(url, method, body)
    assert (found, said.get("error", "")) == (code, word)
    if code != 200:
        assert set(said) == {"error", "detail"}
        assert made.broker.cancels == []
        assert made.broker.recalls == []


def test_a_call_without_a_needed_parameter_says_which_and_where() -> None:
    assert MadeUpApi().ask("/records")[1]["detail"] == "`id`: name it in the query."


def test_a_wrong_method_says_which_ones_there_are() -> None:
    _, headers, _ = MadeUpApi().reply("/api/v1/pauses/a", "PATCH")
    assert headers["Allow"] == "DELETE, PUT"


def admitted(settings: AdminSettings, **headers: str) -> int:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return MadeUpApi(settings).ask("/pending", headers=named)[0]


def test_without_a_token_the_api_is_closed_where_others_can_reach_it() -> None:
    for host in ("0.0.0.0", "", "10.0.0.1", "example.org", "::"):  # noqa: S104
        assert admitted(AdminSettings(host=host)) == 403
    for host in ("127.0.0.1", "localhost", "::1", "127.9.9.9"):
        assert admitted(AdminSettings(host=host)) == 200


def test_without_a_token_a_name_that_is_not_this_machine_s_does_not_get_through() -> None:
    local = AdminSettings()
    for name in ("localhost:9464", "[::1]:9464", "127.0.0.1"):
        assert admitted(local, host=name) == 200
    for name in ("evil.example:9464", "10.0.0.1", "[", "localhost.evil.example"):
        assert admitted(local, host=name) == 403


def test_without_a_token_a_page_of_another_site_does_not_get_through() -> None:
    local = AdminSettings()
    for site in ("same-origin", "none"):
        assert admitted(local, host="127.0.0.1:9464", sec_fetch_site=site) == 200
    for site in ("cross-site", "same-site"):
        assert admitted(local, host="127.0.0.1:9464", sec_fetch_site=site) == 403
    assert admitted(local, host="localhost:9464", origin="http://localhost:9464") == 200
    for origin in ("https://evil.example", "null"):
        assert admitted(local, host="127.0.0.1:9464", origin=origin) == 403


def test_with_a_token_whoever_shows_it_is_let_in_from_anywhere() -> None:
    guarded = AdminSettings(host="0.0.0.0", token="a-token-nobody-guesses")  # noqa: S104
    assert (
        admitted(guarded, host="proxy:9464", authorization="Bearer a-token-nobody-guesses") == 200
    )
    assert admitted(guarded, host="proxy:9464", authorization="Bearer sécret") == 401
    made = MadeUpApi(guarded)
    code, headers, body = made.reply("/api/v1/pending")
    assert code == 401
    assert headers["Www-Authenticate"] == "Bearer"
    assert json.loads(body)["error"] == "token-needed"
