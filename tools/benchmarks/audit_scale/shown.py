"""Table with a row of figures for each number of records."""

from collections.abc import Sequence

from rich.table import Table

from tools.benchmarks.audit_scale.curve import Curve
from tools.benchmarks.audit_scale.scale import Measured

COLUMNS = (
    *("records", "bare s", "audit s", "ratio", "without start", "records/s", "CPU s"),
    *("peak MB", "further", "further s"),
)


def table(found: Sequence[Measured]) -> Table:
    shown = Table(title="The audit beside a bare read", caption=_caption(found))
    for name in COLUMNS:
        shown.add_column(name, justify="right")
    for one in found:
        shown.add_row(*_cells(one))
    return shown


def curve_of(found: Sequence[Measured]) -> Curve | None:
    """Return the curve of the whole audits. Two points always form a line, so three are needed."""
    points = sorted((one.records, one.audit_s) for one in found)
    return Curve.through(points) if len(points) > 2 else None


def _cells(one: Measured) -> tuple[str, ...]:
    return (
        f"{one.records:,}",
        f"{one.bare_s:.1f}",
        f"{one.audit_s:.1f}",
        f"{one.ratio:.2f}",
        f"{one.ratio_without_start:.2f}",
        f"{one.per_s:,.0f}",
        f"{one.audit_cpu_s:.0f}",
        f"{one.peak_bytes / 1e6:,.0f}",
        f"{one.further_records:,}",
        f"{one.further_s:.1f}",
    )


def _caption(found: Sequence[Measured]) -> str | None:
    curve = curve_of(found)
    if curve is None:
        return None
    steps = ", ".join(f"{step:.1f}" for step in curve.steps_s)
    return (
        f"{curve.fixed_s:.1f} s and {curve.per_million_s:.1f} s for each million; "
        f"step by step {steps}: {'straight' if curve.is_straight else 'not straight'}"
    )
