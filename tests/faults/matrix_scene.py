"""One cell of the failure matrix: records of several kinds, and a proxy stopped at a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from proxy.admin.broker_access import BrokerAccess
from proxy.admin.problem import Problem
from proxy.config.settings import Settings
from proxy.kafka.settings_topic import open_settings_topic
from proxy.kafka.topics import admin_client, describe_topic
from proxy.protocol.proofs import HopAuthenticator
from tests.faults.matrix_records import (
    DELAYED,
    MOVED,
    NAMED,
    PARTITIONS,
    PAUSED,
    PLAIN,
    PURGED,
    RECALLED,
    MatrixRecords,
    asking,
)
from tests.support.installation.admin_client import call
from tests.support.installation.held_proxy import HeldProxy
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.oracle.asked import Rules, levels_ms
from tests.support.oracle.conservation import await_ends, ingress_count
from tests.support.records import read_to_end
from tests.support.waiting import wait_for

LEVELS = "100ms 200ms 400ms"
SETTINGS: dict[str, Any] = {"levels": LEVELS, "retry": {"first_level": 1, "max_attempts": 3}}
RULES = Rules(levels_ms=levels_ms(LEVELS), max_attempts=3)
AHEAD_OF_THE_BROKER = "local state put aside"
"""End of the name of a local folder that covers more than is committed. It would hide the fault."""
LOST = "session lost"
IMPATIENT_S, PATIENT_S = 6, 60
"""The broker ends sessions of silent members after these seconds, and impatiently transactions."""
OPEN_S = 600
"""Patiently, a transaction may stay open for longer than a broker takes to start on a busy machine.

A broker that ends it as it starts may leave out partitions that have no leader yet (KAFKA-20734).
Their records would then be committed with the next transaction.
"""
HARM_WITHIN_S = ENDED_WITHIN_S = 300


class Scene:
    """A proxy that has ended a record, and reaches `step` with the first of many more records."""

    def __init__(self, bootstrap: str, folder: Path, step: str, patience_s: int) -> None:
        self.step = step
        self.installation = Installation(bootstrap, folder, PARTITIONS)
        open_s = OPEN_S if patience_s == PATIENT_S else patience_s
        timeouts = {
            "transaction.timeout.ms": str(open_s * 1_000),
            "session.timeout.ms": str(patience_s * 1_000),
        }
        self.settings = {**SETTINGS, "kafka": self.installation.kafka(**timeouts)}
        of_held = self.installation.settings("one", **self.settings)
        self.held = self.installation.proxies["one"] = HeldProxy(folder / "one", of_held)
        self._of_held = Settings.model_validate(of_held)
        self._operator = BrokerAccess(self._of_held)
        self._paused: dict[str, str] = {}

    @property
    def group_id(self) -> str:
        return f"{self.installation.name}.proxy"

    def bring_to_step(self) -> None:
        """Return when the proxy stops at the step, within the first transaction of the records.

        One pause has ended by then, and the proxy does not know it.
        """
        target = self.installation.target(partitions=2)
        self.held.start_ready()
        self.installation.send(asking(number, target) for number in range(PARTITIONS))
        self.installation.await_ingested()
        self._pause("over", "still")
        records = MatrixRecords(
            self.installation.name,
            self.installation.ingress,
            target,
            tuple(self._paused.values()),
            self._who_signs(),
        )
        self.held.hold_at(self.step)
        self.installation.send(records.all())
        self.held.await_held()
        self._resume("over")

    def heir(self) -> ProxyProcess:
        return self.installation.proxy("two", **self.settings)

    def await_session_lost(self) -> None:
        wait_for(self._has_lost_session, HARM_WITHIN_S, LOST)

    def await_failed_call(self) -> None:
        wait_for(
            lambda: self.held.has_failed or self._has_lost_session(), HARM_WITHIN_S, "a failed call"
        )

    def await_a_shard_each(self) -> None:
        both = self.installation.proxies.values()
        wait_for(
            lambda: [proxy.shards() for proxy in both] == [1, 1], HARM_WITHIN_S, "a shard for each"
        )

    def await_all_ends(self) -> None:
        """Return when all records have ended, even if the first proxy is frozen. The remaining
        pause must have delayed a record, and is over."""
        if self._paused:
            wait_for(self._has_paused_all, HARM_WITHIN_S, "what a pause holds back")
            self._resume(*self._paused)
        with ingress_count(self.installation) as wanted:
            await_ends(self.installation, wanted, ENDED_WITHIN_S)

    def judge(self) -> None:
        """Check that each record ended once, as requested: none lost, repeated, early or altered.

        The proxy must never have assumed a commit that the broker did not have.
        """
        self.await_all_ends()
        wait_for(self._has_nothing_waiting, HARM_WITHIN_S, "nothing to wait any more")
        counts = self.installation.judge(ENDED_WITHIN_S, RULES).counts
        paused = counts.pop("requeued") - 2
        assert 2 * PAUSED <= paused <= 4 * PAUSED, "each was paused once, and moved once"
        assert paused % 2 == 0, paused
        assert counts == {
            "delivered": 2 + PLAIN + DELAYED + NAMED + MOVED + 2 * PAUSED,
            "cancelled": NAMED + RECALLED + PURGED,
            "replaced": MOVED,
            "applied": NAMED + RECALLED + PARTITIONS,
            "dead-lettered": 1,
        }, counts
        for proxy in self.installation.proxies.values():
            assert AHEAD_OF_THE_BROKER not in proxy.whole_log, f"{proxy.folder.name} was ahead"

    def _who_signs(self) -> HopAuthenticator:
        admin = admin_client(self._of_held)
        ingress = describe_topic(self.installation.ingress, admin, self._of_held)
        with closing(open_settings_topic(self._of_held, lambda: None, admin)) as known:
            return HopAuthenticator(known.signing_key(), ingress.topic_id)

    def _pause(self, *names: str) -> None:
        self._paused = {name: self.installation.target(name) for name in names}
        for target in self._paused.values():
            self._operator.pause(target)
        wait_for(
            lambda: len(call(self.held, "GET", "/pauses")[1]["paused"]) == len(names),
            HARM_WITHIN_S,
            "the pauses",
        )

    def _resume(self, *names: str) -> None:
        for name in names:
            resume = partial(self._is_resumed, self._paused.pop(name))
            wait_for(resume, HARM_WITHIN_S, f"the end of the pause of {name}")

    def _is_resumed(self, target: str) -> bool:
        """Ask again if a slow broker has not confirmed it in time."""
        try:
            self._operator.resume(target, None)
        except Problem as problem:
            if problem.code != 503:
                raise
            return False
        return True

    def _has_paused_all(self) -> bool:
        (left,) = self._paused.values()
        outcomes = read_to_end(self.installation.bootstrap, self.installation.outcomes)
        why = f"{left} is paused".encode()
        return sum(why in (outcome.value or b"") for outcome in outcomes) == PAUSED

    def _has_nothing_waiting(self) -> bool:
        """Return whether no proxy has pending records: cancelled and moved ones are gone for
        good."""
        running = [proxy for proxy in self.installation.proxies.values() if proxy.is_running]
        return not any(call(proxy, "GET", "/pending")[1]["pending"] for proxy in running)

    def _has_lost_session(self) -> bool:
        return LOST in self.held.log


@contextmanager
def held_scene(
    bootstrap: str, folder: Path, step: str, patience_s: int = IMPATIENT_S
) -> Iterator[Scene]:
    """Yield a scene whose proxy has stopped at the step. At the end everything is judged."""
    scene = Scene(bootstrap, folder, step, patience_s)
    try:
        scene.bring_to_step()
        yield scene
        scene.judge()
    finally:
        scene.installation.close()
