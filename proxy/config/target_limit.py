"""Limits on targets that an operator sets at run time, beside those of the settings (`release`)."""

import json
from collections.abc import Mapping
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from proxy.config.settings import MOST_PER_SECOND, Section
from proxy.config.values import DurationMs

WILDCARDS = frozenset("*?[")


class OverdueLimit(Section):
    """What becomes of records that would be delivered later than `older_than` after their due."""

    older_than_ms: DurationMs = Field(alias="older_than")
    action: Literal["deliver", "dead-letter", "drop"]


class Resumed(NamedTuple):
    """The end of a pause, and the limit on the records that the pause held back."""

    at_ms: int
    per_second: int | None = None
    """Records a second, over all partitions. None: all go at once."""


class TargetLimit(Section):
    """What counts for each target of a pattern: a cap, a rule for the overdue, or both."""

    per_second: int | None = Field(None, ge=1, le=MOST_PER_SECOND)
    overdue: OverdueLimit | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "TargetLimit":
        if self.per_second is None and self.overdue is None:
            raise ValueError("name per_second, overdue, or both")
        return self

    def rules_json(self, pattern: str) -> str | None:
        """The rule for the overdue as an audit reads it; None where there is none."""
        if self.overdue is None:
            return None
        return json.dumps([{"targets": pattern, **self.overdue.model_dump()}], sort_keys=True)


def by_precedence(limits: Mapping[str, TargetLimit]) -> dict[str, TargetLimit]:
    """In the order in which patterns are tried: topic names, then patterns, longer ones first.

    The same for all instances, in whatever order they have heard of them.
    """
    return dict(sorted(limits.items(), key=_place))


def _place(item: tuple[str, TargetLimit]) -> tuple[bool, int, str]:
    pattern = item[0]
    return not WILDCARDS.isdisjoint(pattern), -len(pattern), pattern
