"""Logs are JSON for programs and lines for people, from the configured level on."""

import io
import json
from collections.abc import Iterator
from typing import cast

import pytest
import structlog

from proxy.logs import LogFormat, configure_logs


@pytest.fixture(autouse=True)
def _defaults_afterwards() -> Iterator[None]:
    yield
    structlog.reset_defaults()


class Terminal(io.StringIO):
    """Stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def said(level: str, form: str, stream: io.StringIO) -> str:
    configure_logs(level, cast("LogFormat", form), stream)
    log = structlog.get_logger("test")
    log.debug("too fine")
    log.warning("shard given up", partition=3)
    return stream.getvalue()


@pytest.mark.parametrize("form", ["auto", "json"])
def test_elsewhere_than_on_a_terminal_a_line_is_a_json_object(form: str) -> None:
    event = json.loads(said("info", form, io.StringIO()))
    assert (event["event"], event["partition"], event["level"]) == ("shard given up", 3, "warning")
    assert event["time"].endswith("Z")


@pytest.mark.parametrize(("form", "stream"), [("auto", Terminal()), ("console", io.StringIO())])
def test_for_a_person_a_line_is_an_event_and_its_keys(form: str, stream: io.StringIO) -> None:
    text = said("info", form, stream)
    assert text.count("\n") == 1
    assert "shard given up" in text
    assert "partition" in text
    assert not text.startswith("{")


def test_the_level_decides_what_is_logged() -> None:
    assert "too fine" in said("debug", "json", io.StringIO())
    assert said("error", "json", io.StringIO()) == ""


@pytest.mark.parametrize("form", ["console", "json"])
def test_an_error_shows_where_it_was_raised_and_no_variables(form: str) -> None:
    """Variables may hold passwords and tokens."""
    stream = io.StringIO()
    configure_logs("info", cast("LogFormat", form), stream)
    password = "s3cret-" + form
    try:
        int(f"{password!r}"[:0] or "x")
    except ValueError:
        structlog.get_logger("test").exception("session ended by a defect")
    assert "ValueError" in stream.getvalue()
    assert password not in stream.getvalue()


def test_text_from_outside_cannot_steer_the_terminal_that_shows_the_log() -> None:
    stream = io.StringIO()
    configure_logs("info", "console", stream)
    try:
        raise ValueError("\x1b[2J\u202e")
    except ValueError as error:
        log = structlog.get_logger("test")
        log.exception("broken \x9b", topic="a\x1b[2J\nb", why=error, more=["\x1b[2J"])
    text = stream.getvalue()
    assert text.count("\\x1b[2J") == 5
    assert all(line.isprintable() for line in text.split("\n"))
