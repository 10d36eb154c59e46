"""The tests' cluster computes coordinator partitions as brokers do."""

from tests.support.installation.cluster import coordinator_partition


def test_coordinator_partition_is_that_of_java_string_hash_code() -> None:
    code_of_hello, smallest_code = 99_162_322, -(1 << 31)
    assert coordinator_partition("hello") == code_of_hello % 4
    assert coordinator_partition("polygenelubricants") == abs(smallest_code) % 4
