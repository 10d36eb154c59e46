"""Other schedulers' words (docs/aliases.md), read by column expressions."""

from __future__ import annotations

from pyspark.sql import DataFrame


def aliases_in(policies: DataFrame) -> list[str]:
    """Names of the aliases that these POLICIES have."""
    return sorted({name for row in policies.select("aliases").collect() for name in row.aliases})


def translated(judged: DataFrame, aliases: list[str]) -> DataFrame:
    """Stub until the aliases are here."""
    return judged
