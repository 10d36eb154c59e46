"""Soak test: proxies on a cluster under load, with random faults from a seed. Begin with `soak`.
`faults` draws the faults. `proxy_lane` and `broker_lane` apply them to `scene`. `python -m
tools.soak --help`."""
