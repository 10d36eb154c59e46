"""No id is a receipt's name, and no two receipts share one."""

from proxy.protocol.header_values import LONGEST_ID_BYTES
from proxy.protocol.proofs import receipt_name

LAST = 2**63 - 1


def test_the_name_of_a_receipt_is_longer_than_any_id() -> None:
    assert {len(receipt_name(offset)) for offset in (0, 7, LAST)} == {LONGEST_ID_BYTES + 1}


def test_each_receipt_has_a_name_of_its_own() -> None:
    offsets = [0, 1, 10, 11, 100, LAST - 1, LAST]
    assert len(set(map(receipt_name, offsets))) == len(offsets)
