"""Keys go to the same partitions as with Java producers."""

import pytest

from proxy.dispatch.partitioning import murmur2, partition_of

OF_KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""From Kafka's own test (org.apache.kafka.common.utils.UtilsTest.testMurmur2)."""


@pytest.mark.parametrize("key", OF_KAFKA)
def test_hash_is_that_of_java_producers(key: bytes) -> None:
    assert murmur2(key) == OF_KAFKA[key] & 0xFFFFFFFF


def test_partition_is_that_of_the_hash_without_its_sign() -> None:
    assert partition_of(b"21", 4) == (-973932308 & 0x7FFFFFFF) % 4
    assert partition_of(b"", 1) == 0
