"""What the tests' cluster reckons as brokers do."""

from tests.support.installation.cluster import coordinator_partition


def test_coordinator_partition_is_that_of_java_string_hash_code() -> None:
    assert {"hello": 99162322 % 4, "polygenelubricants": 0} == {
        name: coordinator_partition(name) for name in ("hello", "polygenelubricants")
    }
