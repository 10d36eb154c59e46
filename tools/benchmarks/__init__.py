"""Measurements of `make bench`: the proxy beside a plain relay, on one broker, in one run."""
