"""A worker's pause after a lost session, and when it gives up."""

import pytest

from proxy.errors import ClientUnusable, InstanceConflict
from proxy.publishing.failures import ClientStuck, SessionLost
from proxy.worker.worker import (
    BACKOFF_S,
    FENCED_AT_MOST,
    STEADY_AFTER_S,
    STUCK_AT_MOST,
    SessionLosses,
)

FENCED = SessionLost("this producer has been Fenced")


def test_each_loss_in_a_row_is_waited_for_longer_until_a_session_was_steady() -> None:
    losses, away = SessionLosses("pod-0"), SessionLost("the broker is away")
    waits_s = [losses.backoff_s(away, 1.0) for _ in range(len(BACKOFF_S) + 1)]
    assert waits_s == [*BACKOFF_S, BACKOFF_S[-1]]
    assert losses.backoff_s(away, STEADY_AFTER_S + 1) == BACKOFF_S[0]


def test_being_fenced_again_and_again_is_another_process_of_the_same_name() -> None:
    losses = SessionLosses("pod-0")
    for _ in range(FENCED_AT_MOST - 1):
        losses.backoff_s(FENCED, 1.0)
    with pytest.raises(InstanceConflict, match="pod-0"):
        losses.backoff_s(FENCED, 1.0)


def test_being_fenced_now_and_then_is_no_conflict() -> None:
    losses = SessionLosses("pod-0")
    waits_s = {losses.backoff_s(FENCED, STEADY_AFTER_S + 1) for _ in range(2 * FENCED_AT_MOST)}
    assert waits_s == {BACKOFF_S[0]}


def test_being_fenced_among_other_losses_is_no_conflict() -> None:
    losses, away = SessionLosses("pod-0"), SessionLost("the broker is away")
    for _ in range(FENCED_AT_MOST):
        losses.backoff_s(away, 1.0)
        losses.backoff_s(FENCED, 1.0)
    for _ in range(FENCED_AT_MOST - 2):
        losses.backoff_s(FENCED, 1.0)
    with pytest.raises(InstanceConflict):
        losses.backoff_s(FENCED, 1.0)


def test_client_that_is_stuck_too_often_ends_the_process() -> None:
    losses = SessionLosses("pod-0")
    for _ in range(STUCK_AT_MOST):
        losses.backoff_s(ClientStuck(12.0), STEADY_AFTER_S + 1)
    with pytest.raises(ClientUnusable):
        losses.backoff_s(ClientStuck(12.0), STEADY_AFTER_S + 1)
