"""The audit knows exactly the proxy's reasons for dead letters."""

from proxy.protocol.outcomes import REASONS
from spark_jobs.requests.error_codes import OF_DEAD_LETTERED, TRANSACTION_EXPIRED


def test_audit_knows_every_reason_and_no_other() -> None:
    assert {*OF_DEAD_LETTERED, TRANSACTION_EXPIRED} == REASONS.keys()
