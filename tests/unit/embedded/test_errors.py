"""Last messages of a dying broker become sentences with a remedy."""

from pathlib import Path

import pytest

from proxy.embedded.server import BrokerFailed, explain
from proxy.errors import DataDirInUse, PortTaken, ProxyError

FOLDER = Path("some-folder")


def _explained(*tail: str) -> ProxyError:
    return explain("The broker ended", list(tail), FOLDER, "127.0.0.1", 9092)


@pytest.mark.parametrize(
    ("said", "kind", "sentence"),
    [
        ("java.net.BindException: Address already in use", PortTaken, "another port"),
        ("Failed to acquire lock on file .lock in x", DataDirInUse, "some-folder"),
        ("java.io.IOException: No space left on device", BrokerFailed, "Free disk space"),
        ("Error: Could not reserve enough space for heap", BrokerFailed, "less heap"),
    ],
)
def test_known_cause_is_named_with_its_remedy(
    said: str, kind: type[ProxyError], sentence: str
) -> None:
    error = _explained("starting", said, "shut down completed")
    assert isinstance(error, kind)
    assert sentence in str(error)


def test_unknown_cause_shows_the_end_of_the_log_and_no_more() -> None:
    text = str(_explained(*[f"line {number};" for number in range(100)]))
    assert "line 99;" in text
    assert "line 85;" in text
    assert "line 84;" not in text


def test_silent_death_says_that_nothing_was_said() -> None:
    assert str(_explained()).endswith("(nothing)")
