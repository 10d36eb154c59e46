"""The calls about dead letters, with fake letters."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from proxy.admin import replay_jobs
from proxy.admin.calls import READINGS_AT_ONCE
from proxy.admin.problem import Problem
from proxy.config.settings import AdminSettings
from proxy.dead_letters.letter import Place
from tests.support.simulation.admin_api import MadeUpApi

OWN = "timer.dead-letters"
ENDED_WITHIN = "wait=30s"


def replay(made: MadeUpApi, wait: str = ENDED_WITHIN, **body: Any) -> tuple[int, Any]:
    asked = {"topic": OWN, "dry_run": False, **body}
    return made.ask(f"/dead-letters/replays?{wait}", "POST", asked)


def test_letters_are_listed_with_what_they_were_replayed_as() -> None:
    made = MadeUpApi()
    code, said = made.ask("/dead-letters")
    assert (code, said["topic"], said["cursor"]) == (200, OWN, None)
    first, second = said["letters"]
    assert (first["offset"], first["reason"], first["key"]) == (1, "target-refused", "key")
    assert first["replayed"] is None
    assert second["replayed"] == {"at": 7, "as": "timer.ingress/0/9"}


def test_filters_and_the_cursor_reach_the_reading() -> None:
    made = MadeUpApi()
    _, said = made.ask("/dead-letters?limit=1&reason=too-large&target=orders*&since=5&until=9")
    assert made.ask(f"/dead-letters?cursor={said['cursor']}")[0] == 200
    (group, selection, _, limit), (_, _, ends, _) = made.letters.pages
    assert (group, limit, ends) == (None, 1, {0: 1, 1: 0})
    assert (selection.reasons, selection.targets) == (("too-large",), ("orders*",))
    assert (selection.from_ms, selection.to_ms) == (5, 9)


def test_letters_of_a_group_are_chosen_by_patterns_of_exceptions() -> None:
    made = MadeUpApi()
    assert made.ask("/dead-letters?topic=dlq.billing&reason=ValueError*")[0] == 200
    group, selection, _, _ = made.letters.pages[0]
    assert (group, selection.reasons) == ("billing", ("ValueError*",))


@pytest.mark.parametrize(
    ("query", "code", "why"),
    [
        ("topic=orders", 404, "orders is no topic of dead letters"),
        ("topic=dlq.", 404, "a group's letters are in dlq.<group>"),
        ("reason=target-refusd", 404, "did you mean target-refused?"),
        ("since=9&until=9", 409, "`since` must be before `until`"),
        ("since=yesterday", 400, "`since`: 'yesterday' is not a time"),
        ("cursor=2.7", 400, "does not come from this call"),
        ("limit=1001", 400, "a number from 1 to 1000"),
        ("target=a b", 400, "A pattern of targets"),
        ("reason=", 400, "`reason`: String should have at least 1 character"),
        ("group=billing", 400, "the unknown name 'group'"),
    ],
)
def test_wrong_questions_are_refused_in_a_sentence(query: str, code: int, why: str) -> None:
    made = MadeUpApi()
    got, said = made.ask(f"/dead-letters?{query.replace(' ', '%20')}")
    assert (got, made.letters.pages) == (code, [])
    assert why in said["detail"]


def test_one_letter_is_shown_with_what_to_do_and_its_value_from_the_ingress() -> None:
    code, said = MadeUpApi().ask(f"/dead-letters/{OWN}/1/7")
    assert code == 200
    assert (said["partition"], said["offset"], said["value_in_ingress"]) == (1, 7, True)
    assert said["value"]["text"] == "from the ingress"
    assert "--set timer-topic" in said["remedy"]
    assert said["headers"][0]["name"] == "timer-topic"


def test_the_topics_with_dead_letters_are_named_with_their_groups() -> None:
    _, said = MadeUpApi().ask("/dead-letters/topics")
    assert said["topics"][1] == {"topic": "dlq.billing", "group": "billing", "offsets": None}


def test_a_dry_run_counts_by_target_and_by_reason() -> None:
    made = MadeUpApi()
    code, said = replay(made, dry_run=True, reasons=["too-large"], set={"timer-topic": "orders"})
    assert (code, said["state"], said["dry_run"], said["replayed"]) == (200, "finished", True, 1)
    assert said["by_target"] == [{"target": "orders", "letters": 1, "first_due": 5, "last_due": 5}]
    assert said["left"] == [
        {"reason": "target-unknown", "letters": 1, "detail": "there is none", "first": "0/1"}
    ]
    (wanted,) = made.letters.replays
    assert wanted.is_dry
    assert wanted.options.edits.values == {"timer-topic": b"orders"}


def test_places_are_replayed_and_those_without_a_letter_are_named() -> None:
    made = MadeUpApi()
    _, said = replay(made, places=["0/0", "0/7"], again=True, limit=5, rate="10/s")
    assert said["missing"] == ["0/7"]
    (wanted,) = made.letters.replays
    assert wanted.places == (Place(0, 0), Place(0, 7))
    assert (wanted.options.is_again, wanted.options.limit) == (True, 5)


@pytest.mark.parametrize(
    ("body", "code", "why"),
    [
        ({"topic": "orders"}, 404, "is no topic of dead letters"),
        ({"places": ["timer.ingress/0/1"]}, 400, "is no place. Write partition/offset"),
        ({"places": []}, 400, "places"),
        ({"set": {"timer-origin": "a"}}, 409, "is written by the proxy and cannot be changed"),
        ({"set": {"a": "1"}, "unset": ["a"]}, 409, "both set and unset"),
        ({"rate": "fast"}, 400, "is not a rate"),
        ({"since": 5, "until": 5}, 409, "before"),
        ({"reasons": ["nonsense"]}, 404, "is not a reason"),
        ({"dry_run": None}, 400, "dry_run"),
        ({"reasons": None}, 400, "reasons"),
        ({"letters": 5}, 400, "letters"),
    ],
)
def test_wrong_replays_are_refused_and_nothing_begins(
    body: dict[str, Any], code: int, why: str
) -> None:
    made = MadeUpApi()
    got, said = replay(made, **body)
    assert (got, made.letters.replays) == (code, [])
    assert why in said["detail"]


def test_a_replay_goes_on_when_nobody_waits_and_is_followed_by_its_id() -> None:
    made = MadeUpApi()
    made.letters.go_on.clear()
    code, said = replay(made, "wait=0s")
    assert (code, said["state"], said["ended"]) == (202, "running", None)
    made.letters.go_on.set()
    code, said = made.ask(f"/dead-letters/replays/{said['id']}?{ENDED_WITHIN}")
    assert (code, said["state"], said["replayed"]) == (200, "finished", 1)
    assert made.ask("/dead-letters/replays/0123456789ab")[0] == 404


def test_a_replay_that_is_stopped_says_so() -> None:
    made = MadeUpApi()
    made.letters.go_on.clear()
    _, said = replay(made, "wait=0s")
    stop = f"/dead-letters/replays/{said['id']}"
    assert made.ask(stop, "DELETE")[0] == 202
    made.letters.go_on.set()
    assert made.ask(f"{stop}?{ENDED_WITHIN}")[1]["state"] == "stopped"


def test_a_replay_that_the_broker_refuses_says_why() -> None:
    made = MadeUpApi()
    made.letters.refusal = Problem(503, "broker", "Another replay has begun.")
    _, said = replay(made)
    assert (said["state"], said["error"]) == ("failed", "Another replay has begun.")


def test_one_replay_of_a_topic_and_two_in_all_go_on_at_a_time() -> None:
    made = MadeUpApi()
    made.letters.go_on.clear()
    assert replay(made, "wait=0s")[0] == 202
    code, said = replay(made, "wait=0s")
    assert (code, said["error"]) == (409, "replaying")
    assert replay(made, "wait=0s", dry_run=True)[0] == 202
    code, said = replay(made, "wait=0s", topic="dlq.billing")
    assert (code, said["error"]) == (503, "busy")
    made.letters.go_on.set()


def test_only_the_last_replays_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_jobs, "KEPT", 2)
    made = MadeUpApi()
    ids = [replay(made)[1]["id"] for _ in range(3)]
    codes = [made.ask(f"/dead-letters/replays/{ident}")[0] for ident in ids]
    assert codes == [404, 200, 200]


def test_closing_stops_what_goes_on_and_takes_no_more() -> None:
    made = MadeUpApi()
    made.site.replays.close()
    code, said = replay(made, dry_run=True)
    assert (code, "are running already" in said["detail"]) == (503, True)


def test_more_readings_than_the_bound_are_refused() -> None:
    made = MadeUpApi()
    reading, go_on = threading.Barrier(READINGS_AT_ONCE + 1), threading.Event()

    def slow() -> list[Any]:
        reading.wait(60)
        go_on.wait(60)
        return []

    made.letters.topics = slow  # type: ignore[method-assign]
    threads = [
        threading.Thread(target=made.ask, args=("/dead-letters/topics",))
        for _ in range(READINGS_AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    reading.wait(60)
    assert made.ask("/dead-letters")[1]["error"] == "busy"
    go_on.set()
    for thread in threads:
        thread.join()
    assert made.ask("/dead-letters")[0] == 200


def test_what_changes_something_needs_the_token_as_every_call() -> None:
    made = MadeUpApi(AdminSettings(token="a-token-nobody-guesses"))
    assert replay(made)[0] == 401
    assert made.letters.replays == []
