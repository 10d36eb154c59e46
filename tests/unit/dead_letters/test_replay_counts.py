"""Counts of a replay, in bounded memory, and letters that need attention."""

from proxy.dead_letters import replay_plan as counting
from proxy.dead_letters.replay_plan import (
    ALREADY,
    GONE,
    NOT_OURS,
    OTHERS,
    NotReplayed,
    Replayable,
    ReplayCounts,
)
from tests.support.dead_letters import a_letter


def goes(target: str = "orders", due_ms: int = 5) -> Replayable:
    return Replayable(a_letter(), target, due_ms, 0, b"", [])


def test_letters_are_counted_by_target_and_by_why_they_stay() -> None:
    counts = ReplayCounts()
    for decision in (goes(due_ms=9), goes(due_ms=3), NotReplayed(a_letter(4), GONE, "gone")):
        counts.note(decision)
    counts.note(NotReplayed(a_letter(5), GONE, "gone too"))
    assert (counts.replayable, counts.kept) == (2, 2)
    assert (counts.by_target["orders"].first_due_ms, counts.by_target["orders"].last_due_ms) == (
        3,
        9,
    )
    assert (str(counts.by_reason[GONE].place), counts.by_reason[GONE].detail) == ("0/4", "gone")


def test_letters_done_already_and_strangers_need_no_care() -> None:
    counts = ReplayCounts()
    counts.note(NotReplayed(a_letter(), ALREADY, ""))
    counts.note(NotReplayed(a_letter(), NOT_OURS, ""))
    assert not counts.needs_action
    counts.note(NotReplayed(a_letter(), "target-unknown", ""))
    assert counts.needs_action


def test_targets_beyond_a_limit_are_counted_together() -> None:
    counts = ReplayCounts()
    for number in range(counting.MOST_TARGETS_COUNTED + 3):
        counts.note(goes(f"t{number}"))
    assert counts.by_target[OTHERS].letters == 3
    assert counts.replayable == counting.MOST_TARGETS_COUNTED + 3
