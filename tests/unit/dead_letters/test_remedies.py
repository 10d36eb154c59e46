"""Whatever code a letter carries, a person is told what it means and what to do."""

from proxy.dead_letters.letters.remedies import REMEDIES, meaning, remedy
from proxy.records.rejection import REASONS


def test_every_reason_has_something_to_do_and_there_are_no_others() -> None:
    assert REMEDIES.keys() == REASONS.keys()


def test_code_of_another_version_is_said_to_be_unknown() -> None:
    assert "does not know" in meaning("from-the-future")
    assert remedy("from-the-future") == "Do what the detail says, then replay."
