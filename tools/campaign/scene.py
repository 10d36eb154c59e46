"""Constants of all runs: moments, topics and settings."""

from __future__ import annotations

from typing import Final

from proxy.dispatch.release_control import OverdueRule
from proxy.protocol.policy import Policy
from proxy.protocol.proofs import HopAuthenticator, HopKey
from spark_jobs.audit_scope import LatenessLimits
from spark_jobs.kafka.snapshot import OwnTopics
from tests.support.simulation.manual_clock import START_MS

PARTITIONS: Final = 2
"""Ingress partitions of each run, numbered from `run * PARTITIONS`."""
OWN: Final = OwnTopics()
GROUP: Final = "delay-proxy"
TOPIC_ID: Final = "id-1"
HOP_KEY: Final = HopKey(b"the campaign signs hops with it.")
SIGNER: Final = HopAuthenticator(HOP_KEY, TOPIC_ID)

PHASE_MS: Final = 100_000
QUIET_MS: Final = 240_000
"""All records end within this time after the last disturbance of a history."""
IDLE_MS: Final = 660_000
"""Idle time before the last moment. A record that is due before this time and still pending at the
last moment is overdue."""
MOMENTS_MS: Final = (
    START_MS + PHASE_MS,
    START_MS + 2 * PHASE_MS,
    START_MS + 2 * PHASE_MS + QUIET_MS + IDLE_MS,
)
"""Moments at which the topics are read, in every run."""
LAST: Final = len(MOMENTS_MS) - 1
LIMIT_MS: Final = 600_000
LIMITS: Final = LatenessLimits(LIMIT_MS, (("strict-*", LIMIT_MS),))
FAR_MS: Final = 7_200_000
"""Delay of records that are still pending at the last moment."""

SMALL_BYTES: Final = 200
"""Largest value in topics named `small-`."""
OVERDUE_MS: Final = 12_000
OVERDUE: Final = (
    OverdueRule("drop-*", OVERDUE_MS, "drop"),
    OverdueRule("bury-*", OVERDUE_MS, "dead-letter"),
)
POLICY: Final = Policy(
    levels_ms=(1_000, 5_000, 10_000),
    max_delay_ms=86_400_000,
    deny=("denied-*",),
    roll_after_ms=60_000,
    retry_first_level=1,
    retry_max_attempts=3,
    immunity_ms=6_000,
    check_interval_ms=10_000,
    max_checks=2,
    hop_key=HOP_KEY.digest,
    recalls_in=OWN.ingress,
)
OWN_STRIDE: Final = 1_000_000
"""Offsets of a run's records in the proxy's own topics begin at `run * OWN_STRIDE`, because all
runs share these topics."""


def topics_of(run: int) -> dict[str, int]:
    """Return the targets of a run with their partition counts. Every run has its own targets.
    Otherwise deliveries of other runs would prove which sizes a target accepts."""
    partitions = {"orders": 4, "bills": 3, "strict": 1, "small": 2, "drop": 2, "bury": 2}
    groups = {f"retry.g{run}": 2, f"dlq.g{run}": 2}
    return {
        **{named(kind, run): n for kind, n in partitions.items()},
        **groups,
        named("checks", run): 1,
    }


def named(kind: str, run: int) -> str:
    return f"{kind}-{run}"
