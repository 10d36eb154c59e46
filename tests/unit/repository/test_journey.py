"""Code size on a plain record's way: figures of `python -m tools.journey`, which may only fall."""

from tools.journey import journey

MOST_FILES = 29
MOST_LINES = 9_250
MOST_CALLS = 219
"""215 on an idle machine. Parts of a turn go by the wall clock, and a loaded machine adds a few."""


def test_a_plain_record_goes_through_no_more_code_than_it_did() -> None:
    found = journey()
    assert len(found.files) <= MOST_FILES
    assert found.lines <= MOST_LINES
    assert found.calls <= MOST_CALLS
