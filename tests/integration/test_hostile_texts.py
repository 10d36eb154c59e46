"""Hostile texts in the proxy's own topics on a real broker: each reader skips them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.kafka.settings_topic import LIMITS, RATE, RESUMED, SERVED, settings_key
from proxy.protocol.policy import digest_of
from proxy.protocol.position import MISSED_MOVES_PREFIX
from tests.integration.tracing import run_command, trace
from tests.support.hostile_json import HOSTILE
from tests.support.installation.installation import Installation
from tests.support.records import Outgoing, new_topic, write

pytestmark = pytest.mark.integration

TEXTS = [text for name, text in HOSTILE.items() if name != "a text of a mebibyte"]
"""The broker refuses the last one."""


@pytest.fixture
def installation(kafka: str, tmp_path: Path) -> Installation:
    return Installation(kafka, tmp_path, partitions=1)


def test_proxy_starts_and_delivers_whatever_lies_in_its_settings(
    installation: Installation,
) -> None:
    installation.create_settings_topic({"cleanup.policy": "compact"})
    group = str(installation.settings("one")["group_id"])
    mine = [
        settings_key(RATE, group, "worker"),
        settings_key(RESUMED, group, "*"),
        settings_key(LIMITS, group, "*"),
    ]
    keys = [
        "junk",
        f"{SERVED}x/y/0",
        f"{MISSED_MOVES_PREFIX}x/y/0/0",
        f"overdue/{group}/x",
        "hop-key/x",
        *mine,
    ]
    hostile = [Outgoing(key.encode(), text, []) for text in TEXTS for key in keys]
    hostile += [Outgoing(digest_of(text).encode(), text, []) for text in TEXTS]
    write(installation.bootstrap, installation.settings_topic, hostile)
    target = installation.target()
    proxy = installation.proxy()
    proxy.start_ready()
    for _ in range(2):
        installation.send([Outgoing(b"k", b"v", [("timer-topic", target.encode())])])
    installation.await_ingested()
    written = [Outgoing(b"junk", text, []) for text in TEXTS]
    write(installation.bootstrap, installation.settings_topic, written)
    installation.send([Outgoing(b"k", b"v", [("timer-topic", target.encode())])])
    installation.await_ingested()
    shown = run_command(installation, "watch", target, "--from-beginning", "--count", "3")
    assert (shown.code, shown.out.count(" ms  0/")) == (0, 3)
    installation.close()


def test_commands_show_hostile_texts_as_unreadable_and_go_on(installation: Installation) -> None:
    installation.create_dead_letters({})
    installation.create_settings_topic({})
    installation._create(installation.outcomes, 1, {})
    bootstrap, origin = installation.bootstrap, f"{installation.ingress}/0/0"
    asked = [("timer-topic", b"orders"), ("timer-delay", b"1h")]
    installation.send([Outgoing(b"k", b"v", asked)])
    write(bootstrap, installation.outcomes, [Outgoing(origin.encode(), text, []) for text in TEXTS])
    watched = run_command(
        installation, "watch", installation.outcomes, "--from-beginning", "--count", str(len(TEXTS))
    )
    assert (watched.code, watched.out.count("unreadable")) == (0, len(TEXTS))
    story = trace(installation, origin)
    assert (story.code, story.story["state"]) == (0, "unknown")
    assert any("cannot be read" in one for one in story.story["unknown"])

    orders = new_topic(bootstrap, "hostile-orders")
    dues = [b"9" * 5_000, "²".encode(), b"-1", b""]
    write(bootstrap, orders, [Outgoing(b"k", b"v", [("timer-due", due)]) for due in dues])
    seen = run_command(installation, "watch", orders, "--from-beginning", "--count", str(len(dues)))
    assert (seen.code, seen.out.count("unreadable")) == (0, len(dues))

    stamps = [("timer-error", b"too-large"), ("timer-origin", b"t/0/" + b"9" * 19)]
    write(bootstrap, installation.dead_letters, [Outgoing(b"k", b"v", stamps)])
    marks = f"{installation.dead_letters}.replayed"
    odd = [b"x 0/" + b"9" * 5_000, "x ²/0".encode(), b"x 0/0"]
    installation._create(marks, 1, {"cleanup.policy": "compact"})
    write(bootstrap, marks, [Outgoing(key, text, []) for key in odd for text in TEXTS])
    listed = run_command(installation, "dead-letters", "list")
    assert (listed.code, listed.out.count("too-large")) == (0, 1)
    assert run_command(installation, "dead-letters", "show", "0/0").code == 0
