"""Takeovers are read from the lines of a proxy's log."""

from tools.overload.taken_over import TakenOver, taken_over_since

QUIET = """\
not JSON: a warning of some library
{"event": "shard taken over", "partition": 0, "local_pending": 70, "level": "info"}
{"event": "shard taken over", "partition": 1, "local_pending": 5, "level": "info"}
{"event": "shard taken o"""


def test_a_start_that_keeps_its_session_and_its_folders_shows_nothing_else() -> None:
    assert taken_over_since(QUIET) == TakenOver(2, 75, put_aside=0, sessions_lost=0)


def test_a_lost_session_and_a_folder_put_aside_are_counted() -> None:
    log = """\
{"event": "local state put aside; the shard is rebuilt from the broker", "folder": "a"}
{"event": "session lost: shards are recovered from the broker", "why": "fenced"}
"""
    assert taken_over_since(log) == TakenOver(0, 0, put_aside=1, sessions_lost=1)
