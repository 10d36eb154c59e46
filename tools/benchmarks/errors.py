"""What can stop a measurement."""


class BenchmarkError(Exception):
    """A measurement could not be made: what happened, where, and what to look at."""
