"""Renewal of `rocketmq-jars.lock`: `python -m tools.benchmarks.peers.lock_jars` (for maintainers).
Change a version in this file, run it, run `make bench-peers ARGS=--quick`, and commit this file and
the lock file."""

from typing import Final

from tools.benchmarks.peers.rocketmq_jars import ROCKETMQ_LOCK
from tools.lock_jars import write_lock

ROOTS: Final = (
    "org.apache.rocketmq:rocketmq-broker:5.5.0",
    "org.apache.rocketmq:rocketmq-namesrv:5.5.0",
    "org.apache.rocketmq:rocketmq-client:5.5.0",
    # Compiles RocketDriver.java: a JRE has no compiler.
    "org.eclipse.jdt:ecj:3.42.0",
)
GROUPS_NOT_NEEDED: Final = (
    # These jars export metrics, which are not needed.
    *("io.grpc", "com.squareup.okhttp3", "com.squareup.okio"),
    *("org.jetbrains", "org.jetbrains.kotlin"),
)
NOT_NEEDED: Final = (
    # A lock file cannot name the platform classifier of these jars.
    *("netty-transport-native-epoll", "netty-transport-native-kqueue"),
    *("netty-resolver-dns-native-macos", "netty-all", "listenablefuture", "jsr305"),
)


def is_wanted(coordinates: str) -> bool:
    group, artifact, _ = coordinates.split(":")
    return group not in GROUPS_NOT_NEEDED and artifact not in NOT_NEEDED


if __name__ == "__main__":
    command = "python -m tools.benchmarks.peers.lock_jars"
    write_lock(ROCKETMQ_LOCK, "RocketMQ, for `make bench-peers`", command, ROOTS, is_wanted)
