"""Command output is readable, and harmless to the terminal."""

import json
import time

import pytest

from proxy.cli.terminal import (
    VALUE_SHOWN,
    say,
    say_json,
    say_table,
    show_utc,
    shown_bytes,
    shown_duration,
    shown_time,
)


def test_text_is_shown_as_it_is_and_null_as_null() -> None:
    assert shown_bytes("grüße".encode()) == "grüße"
    assert shown_bytes(None) == "null"


def test_control_characters_and_junk_are_escaped() -> None:
    assert shown_bytes(b"a\x1b[2Jb\n\xff") == "a\\x1b[2Jb\\n\\xff"


def test_a_long_value_is_cut_and_its_size_is_said() -> None:
    assert shown_bytes(b"x" * 1000) == "x" * VALUE_SHOWN + "… (1000 bytes)"


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (10_000, "10 s"),
        (90_000, "1.5 min"),
        (7 * 86_400_000, "7 d"),
    ],
)
def test_durations_are_shown_in_a_unit_of_their_size(duration_ms: int, text: str) -> None:
    assert shown_duration(duration_ms) == text


def test_a_time_that_is_no_date_is_shown_as_the_number_it_is() -> None:
    assert shown_time(10**18) == str(10**18)


def test_a_time_has_its_date_and_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert shown_time(1_800_000_000_250) == "2027-01-15 13:30:00.250+05:30"
        show_utc(is_wanted=True)
        assert shown_time(1_800_000_000_250) == "2027-01-15 08:00:00.250+00:00"
    finally:
        show_utc(is_wanted=False)
        monkeypatch.undo()
        time.tzset()


def test_a_table_is_plain_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say_table(["what", "found"], [["a", "[b]"], ["longer", ""]])
    assert capsys.readouterr().out == "what    found\na       [b]\nlonger\n"


HOSTILE = {
    "erases the screen": "\x1b[2J",
    "C1 control": "\x9b2J",
    "delete": "\x7f",
    "a line of its own": "a\nError: pay",
    "back to the line's begin": "a\rb",
    "letters reversed": "\u202egnp.exe",
    "isolate": "\u2066a",
    "unseen": "\u200b",
    "line separator": "\u2028",
    "half a character": "\udc80",
    "tag": "\U000e0041",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_that_is_printed_reaches_the_terminal_raw(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    say(f"grüße  {text}", "second")
    say_table(["what", "found"], [["a", text]])
    say_json({"value": text, text: "größe"})
    shown, second, _head, _row, found, *more = capsys.readouterr().out.split("\n")
    assert shown.startswith("grüße  ")
    assert (second, more) == ("second", [""])
    assert json.loads(found) == {"value": text, text: "größe"}
    assert found.isascii()
    assert all(line.isprintable() for line in (shown, _row, found))


def test_a_table_on_a_terminal_is_as_plain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    say_table(["found"], [["a\x1b[2J\u202eb\nc"]])
    assert "a\\x1b[2J\\u202eb\\nc" in capsys.readouterr().out
