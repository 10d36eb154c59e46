"""Whether the broker lets the proxy in, and what it may do there: said to a person.

May use config. Begin with `rights`; `broker_errors` explains why no broker answers, `connection` is
for what a person asks once.
"""
