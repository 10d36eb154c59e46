"""A soak: proxies on a cluster under load, while a nemesis drawn from a seed does its worst.

Begin with `soak`: what runs, in order. `faults` says what is drawn, `nemesis` does it to `scene`.
`python -m tools.soak --help`.
"""
