"""The command line: `kafka-delay-proxy`, also `python -m proxy`."""

from proxy.cli.app import main

__all__ = ["main"]
