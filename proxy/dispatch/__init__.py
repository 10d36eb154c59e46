"""Decisions about due records. Begin with `dispatcher`. The package is pure, and may use scheduling
and the rooms below it."""
