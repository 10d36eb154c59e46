"""Ids, cancels, replacements, half messages, retries and rolls while the proxy dies repeatedly,
once with its disk. Each record ends once, as the log says."""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.support.installation.installation import Installation
from tests.support.installation.mixed_load import GROUP, MixedLoad
from tests.support.oracle.asked import Rules, levels_ms
from tests.support.oracle.auditor import Auditor

pytestmark = [pytest.mark.integration, pytest.mark.faults]

LEVELS = "50ms 100ms 200ms 400ms 800ms"
RULES = Rules(levels_ms=levels_ms(LEVELS), immunity_ms=200, check_interval_ms=400, max_checks=3)
SETTINGS: dict[str, Any] = {
    "levels": LEVELS,
    "retry": {"max_attempts": 16},
    "transactions": {"immunity": "200ms", "check_interval": "400ms", "max_checks": 3},
    "roll_after": "700ms",
}
CRASHES, LOST_AT = 6, 3
EVERY_END = {
    "delivered",
    "cancelled",
    "replaced",
    "dead-lettered",
    "rolled",
    "requeued",
    "rolled-back",
    "expired",
    "applied",
    "missed",
}


def test_proxy_killed_again_and_again_under_every_kind_of_request(
    installation: Installation, auditor: Auditor
) -> None:
    targets = [installation.target(partitions=2), installation.target("bills")]
    installation.check_topic()
    prefixes = {name: f"{installation.name}.{name}." for name in ("retry", "dlq")}
    for prefix in prefixes.values():
        installation.named_target(prefix + GROUP)
    topics = {
        **installation.settings("one")["topics"],
        **{f"{name}_prefix": prefix for name, prefix in prefixes.items()},
    }
    proxy, draw = installation.proxy(topics=topics, **SETTINGS), random.Random(5)
    with MixedLoad(installation, targets):
        for crash in range(CRASHES):
            proxy.start()
            if crash % 2:
                proxy.wait_ready()
            time.sleep(draw.uniform(0.2, 1.2))
            proxy.kill()
            if crash == LOST_AT:
                shutil.rmtree(proxy.data_dir)
        proxy.start_ready()
        time.sleep(1)
    rules = replace(RULES, retry_prefix=prefixes["retry"], dlq_prefix=prefixes["dlq"])
    ends = installation.judge(120, rules)
    assert set(ends.counts) == EVERY_END
    auditor.confirm(installation, ends)
