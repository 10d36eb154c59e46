"""The command line: `kafka-delay-proxy`, also `python -m proxy`.

It may use every room of the proxy. Begin with `app`, which lists the commands."""

from proxy.cli.app import main

__all__ = ["main"]
