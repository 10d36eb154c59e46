"""Numbers as people read them."""

from datetime import UTC, datetime
from typing import Final

UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def thousands(number: int) -> str:
    """1234567 as `1 234 567`, with spaces that do not break."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def milliseconds(duration_ms: float | None) -> str:
    """A duration with the unit that fits it: `37 ms`, `1.5 s`, `2 h`; a dash for None."""
    if duration_ms is None:
        return "\N{EN DASH}"
    for unit_ms, unit in UNITS:
        if abs(duration_ms) >= unit_ms:
            return f"{duration_ms / unit_ms:.3g} {unit}"
    return f"{duration_ms:.3g} ms"


def moment(at_ms: int) -> str:
    """Epoch ms as `2026-01-01 09:00:00.250 UTC`; beyond the calendar the number itself."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03} UTC"
