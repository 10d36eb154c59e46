"""How a judgement is written down: rules over the columns of a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What an audit knows besides the records.

    at_ms: the audited instant. partition_counts: of the targets; none, no partition is judged.
    gone_before_ms: of topics that have deleted records: the first that is left was written then.
    settled_only: what need not have ended yet is pending, whatever can be seen of it: an audit that
    goes on without end sees some topics further than others.
    outcomes, dead_letters: the names of these topics.
    """

    at_ms: int
    outcomes: str
    dead_letters: str
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    gone_before_ms: Mapping[str, int] = field(default_factory=dict)
    settled_only: bool = False


class Rule(NamedTuple):
    """Where `holds`, the verdict is this; `detail` is the sentence for a person."""

    verdict: str | Column
    holds: Column
    detail: Column

    def found(self) -> Column:
        """Verdict and detail as a struct."""
        verdict = f.lit(self.verdict) if isinstance(self.verdict, str) else self.verdict
        return f.struct(verdict.alias("verdict"), self.detail.cast("string").alias("detail"))


def asked(name: str | None = None) -> Column:
    """What the ingress record asks for; null where there is none."""
    return f.col("asked") if name is None else f.col(f"asked.{name}")


def said(end: str, name: str) -> Column:
    """What its `delivery`, `outcome` or `letter` says; null where there is none."""
    return f.col(f"{end}.{name}")


def text(sentence: str, *values: Column | str) -> Column:
    """A sentence in which each {} stands for a value."""
    parts = sentence.split("{}")
    shown: list[Column] = [f.lit(parts[0])]
    for value, after in zip(values, parts[1:], strict=True):
        column = f.col(value) if isinstance(value, str) else value
        shown += [f.coalesce(column.cast("string"), f.lit("nothing")), f.lit(after)]
    return f.concat(*shown)


def looked_up(found: Mapping[str, Any], key: Column, kind: str) -> Column:
    """The value of a small mapping, null where the key has none."""
    if not found:
        return f.lit(None).cast(kind)
    pairs = [f.lit(part) for pair in found.items() for part in pair]
    return f.try_element_at(f.create_map(*pairs), key).cast(kind)
