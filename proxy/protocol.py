"""Reads what an ingress record asks for in its headers (DESIGN 2).

The answer is a pure function of the record and of the policy in force at its offset, so that
a replay after any crash gives it again. Bad input is a value, `Rejection`, never an exception.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from proxy.aliases import alias_reader
from proxy.body import Headers, packer
from proxy.due_times import DueTimes
from proxy.entries import Purpose, marked, with_purpose
from proxy.fates import Fate
from proxy.headers import (
    CANCEL,
    HOP_FROM,
    INGRESS_KEY,
    KEY,
    KNOWN,
    PARTITION,
    PLAIN,
    PREFIX,
    REQUESTS,
    SINCE_2,
    UNREADABLE,
)
from proxy.policy import Policy
from proxy.rejection import Rejection
from proxy.special_requests import BY_KEY, Asking, SpecialRequests, read_partition
from proxy.target_names import TargetNames

FOREVER_MS = 2**62


class RequestReader:
    """Turns ingress records into what becomes of them under one policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._pack = packer()
        self._names, self._times = TargetNames(policy), DueTimes(policy)
        self._special = SpecialRequests(policy, self._names, self._times, self._pack)
        self._foreign = alias_reader(policy.aliases) if policy.aliases else None
        self._roll_after_ms = FOREVER_MS if policy.roll_after_ms is None else policy.roll_after_ms

    def read(
        self,
        headers: Headers,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        offset: int,
    ) -> Fate:
        """One record's fate. `timestamp_ms` is the record's own, -1 when it has none.

        The entry keeps the headers as they came; requests and stamps are stripped on delivery,
        and a dead letter shows what was really asked.
        """
        asked = dict(headers)
        if self._foreign is not None and HOP_FROM not in asked:
            translated = self._foreign.translate(headers, key, value)
            if isinstance(translated, Rejection):
                return translated
            headers, key, value = translated
            asked = dict(headers)
        if not asked.keys() <= PLAIN:
            ours = [name for name in asked if name[:6] == PREFIX and name not in PLAIN]
            if ours:
                return self._stranger(ours, asked) or self._special.read(
                    Asking(asked, headers, key, value, timestamp_ms, offset)
                )
        target = self._names.target(asked)
        if isinstance(target, Rejection):
            return target
        due_ms = self._times.due_ms(asked, timestamp_ms)
        if isinstance(due_ms, Rejection):
            return due_ms
        partition = read_partition(asked[PARTITION]) if PARTITION in asked else BY_KEY
        if isinstance(partition, Rejection):
            return partition
        if KEY in asked:
            headers = [*headers, (INGRESS_KEY, key)]
            key = asked[KEY]
        content = partition, key, value, headers
        if due_ms - timestamp_ms > self._roll_after_ms and timestamp_ms >= 0:
            content = with_purpose(content, Purpose(due_ms, offset, due_ms))
            return timestamp_ms + self._roll_after_ms, offset, marked(target), self._pack(content)
        return due_ms, offset, target, self._pack(content)

    def _stranger(self, ours: Iterable[str], asked: dict[str, bytes | None]) -> Rejection | None:
        """Why a record with these headers of ours, none of them plain, cannot be served."""
        if self._policy.protocol < 2:
            for name in ours:
                if name in SINCE_2:
                    return _too_new(name)
        if CANCEL in asked:
            return None
        return next((_unknown(name) for name in ours if name not in KNOWN), None)


def _too_new(name: str) -> Rejection:
    return Rejection(
        "header-unsupported", f"the header {name} did not count yet when the record was written"
    )


def _unknown(name: str) -> Rejection:
    if name == UNREADABLE:
        return Rejection(
            "header-unreadable",
            "a header's name is not UTF-8: the headers are left out here, and stand in the ingress",
        )
    near = get_close_matches(name, sorted(REQUESTS), n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(REQUESTS))}"
    return Rejection("header-unknown", f"{name[:80]!r} is no header of the proxy: {hint}")
