"""The audit knows exactly the proxy's reasons for dead letters."""

from proxy.protocol.outcomes import REASONS
from spark_jobs.requests.error_codes import (
    OF_DEAD_LETTERED,
    OF_OLDER_VERSIONS,
    TRANSACTION_EXPIRED,
)


def test_audit_knows_every_reason_and_no_other() -> None:
    known = {*OF_DEAD_LETTERED, TRANSACTION_EXPIRED} - {OF_OLDER_VERSIONS}
    assert known == REASONS.keys()
