"""What a replay does is counted in bounded memory, and what needs care is known."""

from proxy.dead_letters.letters import tally as counting
from proxy.dead_letters.letters.prospects import ALREADY, GONE, NOT_OURS, Goes, Stays
from proxy.dead_letters.letters.tally import OTHERS, Tally
from tests.support.dead_letters import a_letter


def goes(target: str = "orders", due_ms: int = 5) -> Goes:
    return Goes(a_letter(), target, due_ms, 0, b"", [])


def test_letters_are_counted_by_target_and_by_why_they_stay() -> None:
    tally = Tally()
    for prospect in (goes(due_ms=9), goes(due_ms=3), Stays(a_letter(4), GONE, "gone")):
        tally.note(prospect)
    tally.note(Stays(a_letter(5), GONE, "gone too"))
    assert (tally.goes, tally.stays) == (2, 2)
    assert (tally.going["orders"].first_due_ms, tally.going["orders"].last_due_ms) == (3, 9)
    assert (str(tally.staying[GONE].place), tally.staying[GONE].detail) == ("0/4", "gone")


def test_letters_done_already_and_strangers_need_no_care() -> None:
    tally = Tally()
    tally.note(Stays(a_letter(), ALREADY, ""))
    tally.note(Stays(a_letter(), NOT_OURS, ""))
    assert not tally.needs_care
    tally.note(Stays(a_letter(), "target-unknown", ""))
    assert tally.needs_care


def test_targets_beyond_a_limit_are_counted_together() -> None:
    tally = Tally()
    for number in range(counting.TOLD_APART + 3):
        tally.note(goes(f"t{number}"))
    assert tally.going[OTHERS].letters == 3
    assert tally.goes == counting.TOLD_APART + 3
