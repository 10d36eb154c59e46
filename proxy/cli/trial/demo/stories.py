"""What the demo sends beyond plain deliveries: cancels, retries, half messages, rewrites.

Each story is a group: the records that belong together, and how each of them must end.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

from proxy.cli.trial.demo.plan import ORDERS, PAYMENTS, Step, Wanted, wanted
from proxy.config.sources import variable_name
from proxy.records import outcome
from proxy.records.body import Headers
from proxy.records.headers import (
    ATTEMPT,
    CANCEL,
    CHECK_IMMUNITY,
    CHECK_TOPIC,
    DELAY,
    ID,
    KEY,
    RETRY_GROUP,
    TRANSACTION,
)

GROUP = "demo-group"
RETRY_TOPIC, DLQ_TOPIC = f"retry.{GROUP}", f"dlq.{GROUP}"
CHECKS = "demo-checks"
NOWHERE = "demo-nowhere"
BILLS, REMINDERS = "demo-bills", "demo-reminders"
TARGETS = (ORDERS, PAYMENTS, RETRY_TOPIC, DLQ_TOPIC, BILLS, REMINDERS)
RESCHEDULED, PURGED, PAUSED = "rescheduled", "purged", "paused, let go"
MANY = 12
ROLL_AFTER_S = 18
CHECKS_MS = (2_000, 5_000, 8_000)
ENVIRONMENT = {
    variable_name(path): text
    for path, text in {
        ("topics", "retry_prefix"): "retry.",
        ("topics", "dlq_prefix"): "dlq.",
        ("roll_after",): f"{ROLL_AFTER_S}s",
        ("retry", "first_level"): "1",
        ("retry", "max_attempts"): "3",
        ("retry", "groups"): json.dumps({GROUP: {"first_level": 3, "max_attempts": 16}}),
        ("transactions", "immunity"): "2s",
        ("transactions", "check_interval"): "3s",
        ("transactions", "max_checks"): str(len(CHECKS_MS)),
        ("log", "format"): "console",
    }.items()
}
"""Settings with which a day's work of waiting fits into the demo."""


def story_plan() -> list[Wanted]:
    """All stories, each in the order in which its records are written."""
    return [
        *_cancelled("cancelled", Step.SOON),
        *_cancelled("cancelled while down", Step.DOWN),
        *_too_late(),
        *_replaced(),
        *_retried(),
        *_committed("half, committed", Step.SOON),
        *_committed("half, while down", Step.DOWN),
        *_rolled_back(),
        _undecided(),
        _nowhere(),
        _rewritten(),
        *_recalled(),
        _rescheduled(),
        *_purged(),
        *_paused(),
    ]


def _named(group: str, number: int, delay_ms: int, *requests: tuple[str, str]) -> Wanted:
    """A record with the group's name as its id, and its key on the way to the target."""
    one = wanted(group, number, ORDERS, (DELAY, str(delay_ms)), *requests, delay_ms=delay_ms)
    headers: Headers = [*one.headers, (ID, group.encode()), (KEY, one.key)]
    return replace(one, headers=headers, key=group.encode())


def _control(
    group: str, step: Step, end: str, headers: Headers, after: str | None = None
) -> Wanted:
    """A record that asks for something about an id, and delivers nothing."""
    one = wanted(group, 9, "", key=group.encode(), value=None, step=step, after=after)
    return replace(one, headers=headers, arrives=False, ends=(end,))


def _cancel(group: str, step: Step, end: str, after: str | None = None) -> Wanted:
    return _control(group, step, end, [(CANCEL, group.encode())], after)


def _decision(group: str, step: Step, what: str) -> Wanted:
    headers: Headers = [(TRANSACTION, what.encode()), (ID, group.encode())]
    return _control(group, step, outcome.APPLIED, headers)


def _cancelled(group: str, step: Step) -> Iterator[Wanted]:
    yield replace(_named(group, 0, 14_000), arrives=False, ends=(outcome.CANCELLED,))
    yield _cancel(group, step, outcome.APPLIED)


def _too_late() -> Iterator[Wanted]:
    delivered = _named("cancelled too late", 0, 1_000)
    yield delivered
    yield _cancel("cancelled too late", Step.ARRIVED, outcome.MISSED, delivered.ident)


def _replaced() -> Iterator[Wanted]:
    yield replace(_named("replaced", 0, 12_000), arrives=False, ends=(outcome.REPLACED,))
    yield replace(_named("replaced", 1, 13_000), step=Step.SOON)


def _retried() -> Iterator[Wanted]:
    """A consumer group gives records back: one for the first time, one for the last."""
    for number, (attempt, topic, delay_ms) in enumerate(
        [("0", RETRY_TOPIC, 10_000), ("16", DLQ_TOPIC, 0)]
    ):
        group = ("retry, 1st attempt", "retry, given up")[number]
        one = wanted(group, number, topic, delay_ms=delay_ms)
        yield replace(one, headers=[(RETRY_GROUP, GROUP.encode()), (ATTEMPT, attempt.encode())])


def _prepared(group: str, *requests: tuple[str, str]) -> Wanted:
    return _named(group, 0, 15_000, (TRANSACTION, "prepare"), *requests)


def _committed(group: str, step: Step) -> Iterator[Wanted]:
    """Delivered at its due although the commit came before."""
    yield _prepared(group, (CHECK_IMMUNITY, "1m"))
    yield _decision(group, step, "commit")


def _rolled_back() -> Iterator[Wanted]:
    half = _prepared("half, rolled back", (CHECK_IMMUNITY, "1m"))
    yield replace(half, arrives=False, ends=(outcome.ROLLED_BACK,))
    yield _decision(half.group, Step.SOON, "rollback")


def _undecided() -> Wanted:
    """Asked about, then ended by a record that the proxy writes to itself."""
    half = _prepared("half, undecided", (CHECK_TOPIC, CHECKS))
    ends = (outcome.EXPIRED, outcome.APPLIED)
    return replace(half, reason="transaction-expired", ends=ends, checks_ms=CHECKS_MS)


def _nowhere() -> Wanted:
    one = wanted("no such topic", 0, NOWHERE, (DELAY, "2s"), delay_ms=2_000)
    ends = (outcome.REQUEUED, outcome.REQUEUED, outcome.DEAD_LETTERED)
    return replace(one, reason="target-unknown", ends=ends)


def _recalled() -> Iterator[Wanted]:
    """Taken back by its receipt: it has no id."""
    one = wanted("recalled", 0, ORDERS, (DELAY, "14s"), delay_ms=14_000)
    yield replace(one, arrives=False, ends=(outcome.CANCELLED,))
    recall = _control("recalled", Step.SOON, outcome.APPLIED, [])
    yield replace(recall, recalls=one.ident)


def _rescheduled() -> Wanted:
    """An operator moves it to an earlier time."""
    one = wanted(RESCHEDULED, 0, ORDERS, (DELAY, "17s"), delay_ms=17_000)
    return replace(one, ends=(outcome.REPLACED,))


def _purged() -> Iterator[Wanted]:
    """An operator purges their target."""
    for number in range(MANY):
        one = wanted(PURGED, number, REMINDERS, (DELAY, "16s"), delay_ms=16_000)
        yield replace(one, arrives=False, ends=(outcome.CANCELLED,))


def purge_control(number: int) -> Wanted:
    """One of the records that the proxy writes for a purge: one to each partition."""
    one = wanted(PURGED, MANY + number, "", step=Step.CALLED)
    return replace(one, arrives=False, ends=(outcome.APPLIED,))


def _paused() -> Iterator[Wanted]:
    """They fall due while their target is paused: rewritten once to wait, once to go."""
    for number in range(MANY):
        delay_ms = 1_000 + 50 * number
        one = wanted(PAUSED, number, BILLS, (DELAY, str(delay_ms)), delay_ms=delay_ms)
        yield replace(one, ends=(outcome.REQUEUED, outcome.REQUEUED))


def _rewritten() -> Wanted:
    """Older than `roll_after` before it is due: it is written anew, and arrives all the same."""
    one = _named("rewritten", 0, ROLL_AFTER_S * 1_000 + 4_000)
    return replace(one, ends=(outcome.ROLLED,))
