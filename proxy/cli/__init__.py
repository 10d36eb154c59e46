"""The command line: `kafka-delay-proxy`, also `python -m proxy`.

One file for each group of commands. May use every room of the proxy. Begin with `app`, which lists
the commands. `terminal` holds the options and the output that they share.
"""

from proxy.cli.app import main

__all__ = ["main"]
