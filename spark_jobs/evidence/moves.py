"""Moves: records that take the place of one that waits, with another due, if it still does.

docs/exactly-once.md#moved-records. What takes a place goes on from the record there, as a hop does;
what came too late for that says `missed`, and has nothing to do with that record.
"""

from typing import Final

IS_MOVE: Final = """
coalesce(request.kind IN ('record', 'refused') AND request.moved_due_ms IS NOT NULL, false)
"""
"""SQL: whether a record is to take the place of another one, if only to be a dead letter there."""
MISSED_ITS_PLACE: Final = f"({IS_MOVE} AND coalesce(outcome.end = 'missed', false))"
"""SQL: whether it says that it came too late."""
MOVED: Final = "moved"
WAS_MOVED: Final = f"""
coalesce(outcome.end IN ('replaced', 'requeued') AND outcome.detail = '{MOVED}', false)
"""
"""SQL: whether an outcome says that a move, `outcome.next_offset`, has taken the place."""
