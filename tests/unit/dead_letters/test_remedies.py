"""Every code of a letter has an explanation and a remedy."""

import pytest

from proxy.dead_letters.letter import REMEDIES, meaning, remedy
from proxy.protocol.outcomes import REASONS


def test_every_reason_has_something_to_do_and_there_are_no_others() -> None:
    assert REMEDIES.keys() == REASONS.keys()


@pytest.mark.parametrize("code", ["from-the-future", "too-many"])
def test_code_of_another_version_is_said_to_be_unknown(code: str) -> None:
    assert "does not know" in meaning(code)
    assert remedy(code) == "Do what the detail says, then replay."
