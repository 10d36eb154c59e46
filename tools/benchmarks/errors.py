class BenchmarkError(Exception):
    """Failure that makes a measurement impossible."""
