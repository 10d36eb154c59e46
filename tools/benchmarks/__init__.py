"""Measurements of `make bench`: the proxy beside a plain relay, on one broker, in one run. The
relay is a consumer and a producer that pass records on without delay."""
