"""One cell of the failure matrix: records of several kinds, and a proxy held at a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from proxy.config.settings import Settings
from proxy.kafka.settings.settings_topic import open_settings_topic
from proxy.kafka.topics import admin_client, describe_topic
from proxy.records.hop_mac import HopAuthenticator
from tests.support.installation.held_proxy import HeldProxy
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.oracle.asked import Rules, levels_ms
from tests.support.oracle.conservation import await_ends, ingress_count
from tests.support.records import Headers, Outgoing
from tests.support.waiting import wait_for

LEVELS = "100ms 200ms 400ms"
SETTINGS: dict[str, Any] = {"levels": LEVELS, "retry": {"first_level": 1, "max_attempts": 3}}
RULES = Rules(levels_ms=levels_ms(LEVELS), max_attempts=3)
PARTITIONS = 2
PLAIN, DELAYED, NAMED, RECALLED, PURGED = 10, 20, 5, 4, 6
FARTHEST_MS = 1_000
AHEAD_OF_THE_BROKER = "local state put aside"
"""So ends a local folder that covers more than is committed: that alone would mend it unseen."""
LOST = "session lost"
IMPATIENT_S, PATIENT_S = 6, 60
"""After so long the broker ends a transaction, and a member's session, that it does not hear of."""
HARM_WITHIN_S = ENDED_WITHIN_S = 300


class Scene:
    """A proxy that has ended a record, and comes to `step` with the first of many more."""

    def __init__(self, bootstrap: str, folder: Path, step: str, patience_s: int) -> None:
        self.step = step
        self.installation = Installation(bootstrap, folder, PARTITIONS)
        timeout_ms = str(patience_s * 1_000)
        timeouts = {"transaction.timeout.ms": timeout_ms, "session.timeout.ms": timeout_ms}
        self.settings = {**SETTINGS, "kafka": self.installation.kafka(**timeouts)}
        self.held = HeldProxy(folder / "one", self.installation.settings("one", **self.settings))
        self.installation.proxies["one"] = self.held

    @property
    def group_id(self) -> str:
        """The consumer group of its proxies."""
        return f"{self.installation.name}.proxy"

    def bring_to_step(self) -> None:
        """Return when the proxy stands there, within the first transaction of these records."""
        self._target = self.installation.target(partitions=2).encode()
        self.held.start_ready()
        self.installation.send([self._record(0, None), self._record(1, None)])
        self.installation.await_ingested()
        self._signer = self._who_signs()
        self.held.hold_at(self.step)
        self.installation.send(self._records())
        self.held.await_held()

    def heir(self) -> ProxyProcess:
        """Another instance of the same group, not started yet."""
        return self.installation.proxy("two", **self.settings)

    def await_session_lost(self) -> None:
        """Return when the held proxy says so."""
        wait_for(self._has_lost_session, HARM_WITHIN_S, LOST)

    def await_failed_call(self) -> None:
        """Return when a call of its transaction has failed, or was given up."""
        wait_for(
            lambda: self.held.has_failed or self._has_lost_session(), HARM_WITHIN_S, "a failed call"
        )

    def await_a_shard_each(self) -> None:
        """Return when the held proxy and its heir share the partitions, and serve them."""
        both = self.installation.proxies.values()
        wait_for(
            lambda: [proxy.shards() for proxy in both] == [1, 1], HARM_WITHIN_S, "a shard for each"
        )

    def await_all_ends(self) -> None:
        """Return when everything has ended, though the first may stand still."""
        with ingress_count(self.installation) as wanted:
            await_ends(self.installation, wanted, ENDED_WITHIN_S)

    def judge(self) -> None:
        """Every record ended once, as it asked: none lost, repeated, early or altered.

        And no proxy ever believed what the broker did not have.
        """
        counts = self.installation.judge(ENDED_WITHIN_S, RULES).counts
        assert counts == {
            "delivered": 2 + PLAIN + DELAYED + NAMED,
            "cancelled": NAMED + RECALLED + PURGED,
            "applied": NAMED + RECALLED + PARTITIONS,
            "requeued": 2,
            "dead-lettered": 1,
        }, counts
        for proxy in self.installation.proxies.values():
            assert AHEAD_OF_THE_BROKER not in proxy.whole_log, f"{proxy.folder.name} was ahead"

    def _who_signs(self) -> HopAuthenticator:
        """What only the proxy may write."""
        settings = Settings.model_validate(self.installation.settings("one", **self.settings))
        ingress = describe_topic(self.installation.ingress, admin_client(settings))
        with closing(open_settings_topic(settings, lambda: None)) as known:
            return HopAuthenticator(known.signing_key(), ingress.topic_id)

    def _has_lost_session(self) -> bool:
        return LOST in self.held.log

    def _records(self) -> Iterator[Outgoing]:
        """Some due at once, so that the first transaction has records in it; what is cancelled,
        recalled or purged before these, so that this is read before the proxy is held beyond its
        due."""
        recalled = range(2 * NAMED, 2 * NAMED + RECALLED)
        for number in range(2 * NAMED):
            yield self._record(number, FARTHEST_MS, b"id-%d" % number)
        for number in recalled:
            yield self._record(number, FARTHEST_MS)
        for number in range(NAMED):
            cancel: Headers = [("timer-cancel", b"id-%d" % number)]
            yield Outgoing(b"%d" % number, b"", cancel, number % PARTITIONS)
        for number in recalled:
            partition, behind_the_first = number % PARTITIONS, 1 + number // PARTITIONS
            origin = f"{self.installation.ingress}/{partition}/{behind_the_first}"
            recall: Headers = [("timer-recall", origin.encode())]
            yield Outgoing(b"%d" % number, b"", recall, partition)
        yield from self._purged_records()
        for number in range(PLAIN):
            yield self._record(number, None)
        yield Outgoing(b"lost", b"", [("timer-topic", f"{self.installation.name}.none".encode())])
        for number in range(DELAYED):
            yield self._record(number, FARTHEST_MS * number // DELAYED)

    def _purged_records(self) -> Iterator[Outgoing]:
        """Records for a target, and a purge of it in each partition, as the API writes it."""
        target = f"{self.installation.name}.purged".encode()
        waits: Headers = [("timer-topic", target), ("timer-delay", b"%d" % FARTHEST_MS)]
        for number in range(PURGED):
            yield Outgoing(b"%d" % number, b"purged", waits, number % PARTITIONS)
        for partition in range(PARTITIONS):
            purge = self._signer.signed(partition, None, None, [("timer-purge", target)])
            yield Outgoing(None, None, purge, partition)

    def _record(self, number: int, delay_ms: int | None, ident: bytes | None = None) -> Outgoing:
        asked: Headers = [("timer-topic", self._target)]
        if delay_ms is not None:
            asked.append(("timer-delay", b"%d" % delay_ms))
        if ident is not None:
            asked.append(("timer-id", ident))
        return Outgoing(b"%d" % number, b"value %d" % number, asked, number % PARTITIONS)


@contextmanager
def held_scene(
    bootstrap: str, folder: Path, step: str, patience_s: int = IMPATIENT_S
) -> Iterator[Scene]:
    """The proxy stands at the step: the caller does harm, and makes good; then all is judged."""
    scene = Scene(bootstrap, folder, step, patience_s)
    try:
        scene.bring_to_step()
        yield scene
        scene.judge()
    finally:
        scene.installation.close()
