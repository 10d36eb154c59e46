"""The command line: `kafka-delay-proxy`, also `python -m proxy`.

One module a command, larger ones in rooms of their own; may use every room of the proxy. Begin with
`app`, which lists the commands; `kafka` and `terminal` hold what they share.
"""

from proxy.cli.app import main

__all__ = ["main"]
