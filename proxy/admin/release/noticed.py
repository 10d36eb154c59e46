"""Whether the workers of this process go by what an operator has just written."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from proxy.telemetry.status import Status

NOTICED_WITHIN_S: Final = 5.0
LOOK_EVERY_S: Final = 0.05


def all_notice(
    read_statuses: Callable[[], Sequence[Status]], has_noticed: Callable[[Status], bool]
) -> bool:
    """Waits a while for all of them; one that starts or recovers may not notice in time."""
    until_s = time.monotonic() + NOTICED_WITHIN_S
    while not (is_known := all(map(has_noticed, read_statuses()))):
        if time.monotonic() > until_s:
            break
        time.sleep(LOOK_EVERY_S)
    return is_known


def code_of(*, is_noticed: bool) -> int:
    """Done, or accepted only."""
    return 200 if is_noticed else 202
