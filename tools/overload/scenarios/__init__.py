"""Overload scenarios, one per file."""
