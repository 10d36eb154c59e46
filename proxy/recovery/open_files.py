"""How many files this process may have open: a store has some for each ingress partition."""

import resource
from contextlib import suppress
from typing import Final

import structlog

FILES_EACH: Final = 64
"""What a busy partition's files and mappings come to, about."""
FILES_BESIDE: Final = 256
"""Connections, clients, libraries."""

log = structlog.get_logger(__name__)


def raise_open_files() -> None:
    """Take what the system allows: the default of 1,024 counts for interactive programs."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def say_if_too_few(partitions: int) -> None:
    """Warn where a worker that owns so many partitions could run out of files."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_BESIDE + FILES_EACH * partitions
    if limit not in (resource.RLIM_INFINITY, -1) and limit < needed:
        log.warning(
            "few open files allowed: a worker that gets all partitions may not be able to open "
            "their files",
            allowed=limit,
            partitions=partitions,
            remedy=f"raise the limit (ulimit -n, LimitNOFILE) to {needed}",
        )
