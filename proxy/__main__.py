"""The entry of `kafka-delay-proxy`, also `python -m proxy`."""

import os
import signal
import sys
from typing import NoReturn

FIRST_PROCESS = 1
ENDED_BY_SIGTERM = 128 + signal.SIGTERM


def main() -> NoReturn:
    """Run the command line. SIGTERM ends it even while modules are being imported."""
    is_run = sys.argv[1:2] == ["run"]
    if is_run or os.getpid() == FIRST_PROCESS:  # process 1 ignores a SIGTERM without a handler
        exit_code = 0 if is_run else ENDED_BY_SIGTERM
        signal.signal(signal.SIGTERM, lambda *_: os._exit(exit_code))
    from proxy.cli.app import main as run_command

    run_command()


if __name__ == "__main__":
    main()
