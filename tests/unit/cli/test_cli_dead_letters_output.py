"""Printed letters are complete in the important parts, and harmless to the terminal."""

import pytest

from proxy.cli.dead_letters import (
    HEX_SHOWN,
    TEXT_SHOWN,
    decision_json,
    letter_json,
    say_counts,
    say_letter,
    value_lines,
)
from proxy.dead_letters.replay_plan import ALREADY, Mark, NotReplayed, Replayable, ReplayCounts
from tests.support.dead_letters import a_letter, letter_headers

Captured = pytest.CaptureFixture[str]


def test_text_is_shown_as_text_with_its_line_ends() -> None:
    assert list(value_lines("grüße\r\n\tan alle".encode())) == ["grüße", "        an alle"]


def test_value_that_is_no_text_or_would_move_the_cursor_is_shown_in_hex() -> None:
    assert list(value_lines(b"\xff\x00A")) == [f"00000000  {'ff 00 41':<47}  ..A"]
    assert next(value_lines(b"ok\x1b[2J")).startswith("00000000  6f 6b 1b")
    assert next(value_lines(b"gone\rseen")).startswith("00000000")


def test_long_values_are_cut_with_a_hint() -> None:
    *_, hint = value_lines(b"x" * (TEXT_SHOWN + 1_234))
    assert hint == "… 1,234 characters more; --raw writes all of it to stdout"
    *rows, hint = value_lines(b"\xff" * (HEX_SHOWN + 16))
    assert len(rows) == HEX_SHOWN // 16
    assert hint.startswith("… 16 bytes more")


def test_letter_is_shown_with_what_its_error_means_and_what_to_do(capsys: Captured) -> None:
    letter = a_letter(17, headers=letter_headers(more=[("trace", b"a\x1bb"), ("none", None)]))
    say_letter(letter, "timer.dead-letters", Mark(0, "timer.ingress/0/9"), None)
    out = capsys.readouterr().out
    assert out.startswith("0/17 of timer.dead-letters, written ")
    for line in (
        "reason    target-refused: the target is a topic of the proxy, internal, reserved",
        "do        Replay with --set timer-topic=...",
        " as timer.ingress/0/9\n",
        "headers   timer-topic: secret-orders\n          trace: a\\x1bb\n          none: null\n",
        "value     5 bytes\nvalue\n",
    ):
        assert line in out
    assert "timer-error-detail:" not in out


def test_strangers_record_is_shown_as_one(capsys: Captured) -> None:
    say_letter(a_letter(headers=[("timer-origin", b"x")], value=None), "t", None, None)
    out = capsys.readouterr().out
    assert "the proxy did not write it" in out
    assert "timer-origin: x" in out
    assert "replayed" not in out
    assert "value     null\n" in out


def test_program_gets_bytes_that_are_no_text_in_base64() -> None:
    shown = letter_json(a_letter(key=None, value=b"\xff"), None)
    assert (shown["key"], shown["value_base64"]) == (None, "/w==")
    assert "value" not in shown
    assert letter_json(a_letter(), None)["value"] == "value"


def test_program_is_told_what_becomes_of_each_letter() -> None:
    goes = Replayable(a_letter(3), "orders", 5, 0, b"", [])
    assert decision_json(goes, "timer.ingress/0/9") == {
        "partition": 0,
        "offset": 3,
        "origin": "timer.ingress/1/7",
        "replay": True,
        "target": "orders",
        "due_ms": 5,
        "replayed_as": "timer.ingress/0/9",
    }
    stays = decision_json(NotReplayed(a_letter(3), "target-unknown", "no such topic"))
    assert (stays["replay"], stays["why"]) == (False, "target-unknown")


def test_summary_counts_by_target_and_by_reason(capsys: Captured) -> None:
    counts = ReplayCounts()
    for number in range(12):
        counts.note(Replayable(a_letter(), f"t{number:02}", 0, 0, b"", []))
    for _ in range(2):
        counts.note(NotReplayed(a_letter(4), "target-unknown", "no such topic"))
    counts.note(NotReplayed(a_letter(5), ALREADY, ""))
    say_counts(counts, 0, was_done=False)
    assert capsys.readouterr().out.splitlines() == [
        "Would replay 12 of 15 letters:",
        *(f"  1 to t{number:02}, at once" for number in range(10)),
        "  and to 2 more topics",
        "Would not replay 3:",
        "  2 target-unknown: no such topic (0/4 and 1 more)",
        "  1 were already replayed (--again replays them once more)",
    ]
