"""Soak test: proxies on a cluster under load, with random faults from a seed. Read `soak` first.
`faults` draws the faults. A lane is a thread that applies them: `proxy_lane` to proxies, and
`broker_lane` to brokers. `scene` has the parts that faults hit. `python -m tools.soak --help`."""
