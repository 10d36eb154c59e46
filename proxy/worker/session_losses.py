"""When to try again after a lost session, and when to give up."""

from __future__ import annotations

from typing import Final

from proxy.errors import ClientUnusable, InstanceConflict
from proxy.publishing.errors import ClientStuck

BACKOFF_S: Final = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
STEADY_AFTER_S: Final = 30.0
STUCK_AT_MOST: Final = 20
"""Each leaves a thread and a producer behind until the process ends."""
FENCED_AT_MOST: Final = 5
"""Sessions lost to fencing in a row before it is taken for another process of the same name."""


class SessionLosses:
    """The lost sessions of one worker; `instance` is its name in the consumer group."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._in_a_row = self._stuck = 0

    def backoff_s(self, lost: Exception, lasted_s: float) -> float:
        """One more is lost, after `lasted_s`: how long to wait before the next.

        Raises InstanceConflict, ClientUnusable.
        """
        self._in_a_row = 1 if lasted_s > STEADY_AFTER_S else self._in_a_row + 1
        self._stuck += isinstance(lost, ClientStuck)
        if "fenced" in str(lost).lower() and self._in_a_row >= FENCED_AT_MOST:
            raise InstanceConflict(self._instance, str(lost))
        if self._stuck > STUCK_AT_MOST:
            raise ClientUnusable(self._stuck) from lost
        return BACKOFF_S[min(self._in_a_row, len(BACKOFF_S)) - 1]
