"""The loads of the benchmarks through other schedulers, beside ours: `make bench-peers`."""
