"""Only a listed record that is pending for a retry has a reason."""

from proxy.admin.records import shown_pending
from proxy.scheduling.pending import PendingRecord, Reason

REASONS = {"orders": "not-authorised: no right to write"}


def reason_of(target: str, why: Reason) -> object:
    record = PendingRecord(20, 1, "timer.ingress/0/1", None, 5, target, 10, why, 2)
    return shown_pending(record, set(), REASONS, 10).reason


def test_a_record_between_attempts_has_the_reason_of_its_target() -> None:
    assert reason_of("orders", "requeued") == REASONS["orders"]
    assert reason_of("orders", "scheduled") is None
    assert reason_of("bills", "requeued") is None
