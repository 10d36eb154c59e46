"""The command `kafka-delay-proxy`, outside `proxy`: proxy.py on PyPI has a package of that name."""

import sys
from typing import NoReturn

OURS = "kafka-delay-proxy"


def main() -> NoReturn:
    """Run the command line. If another distribution has overwritten `proxy`, say which."""
    try:
        from proxy.__main__ import main as run
    except ImportError:
        others = _others()
        if not others:
            raise
        sys.exit(
            f"The package proxy was overwritten by {others}, so {OURS} cannot run. Install it into "
            f"an environment of its own: `uv tool install {OURS}`, `pipx install {OURS}`, or the "
            "image. Programs need kafka-delay-client alone, which goes beside other packages."
        )
    run()


def _others() -> str:
    from importlib.metadata import packages_distributions

    return ", ".join(sorted(set(packages_distributions().get("proxy", ())) - {OURS}))
