"""Scenarios of the benchmarks, one module each."""
