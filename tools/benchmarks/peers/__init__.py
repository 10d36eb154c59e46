"""Comparison of other schedulers with the proxy under the same loads: `make bench-peers`."""
