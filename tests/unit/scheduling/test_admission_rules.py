"""How much may wait: in all, and for each target."""

from proxy.scheduling.admission_rules import AdmissionRules, Room
from storage.store import Entry, TargetCounts


def entries(*targets: str) -> list[Entry]:
    return [(1, offset, target, b"") for offset, target in enumerate(targets)]


def room(rules: AdmissionRules, waiting: dict[str, int], others: int = 0) -> Room:
    counts = TargetCounts(waiting, others)
    return Room(rules, counts.total, counts)


def test_without_counts_by_target_the_limit_in_all_counts_alone() -> None:
    left = Room(AdmissionRules(5, {"*": 1}), 3, None)
    left.take("orders")
    assert left.refusal("orders") is None
    left.take("orders")
    why = left.refusal("orders")
    assert why is not None
    assert why.detail.endswith("(admission.records)")


def test_what_waits_and_what_is_taken_count_together() -> None:
    left = room(AdmissionRules(3), {"orders": 1})
    assert left.holds(entries("orders", "bills"))
    assert not left.holds(entries("orders", "bills", "bills"))
    left.take("orders")
    assert left.refusal("bills") is None
    left.take("bills")
    why = left.refusal("orders")
    assert why is not None
    assert why.code == "too-many"
    assert why.detail.startswith("3 records wait in this ingress partition")
    assert why.detail.endswith("(admission.records)")


def test_each_target_has_a_limit_of_its_own_by_the_first_pattern_that_fits() -> None:
    left = room(AdmissionRules(None, {"orders-*": 2, "*": 1}), {"orders-a": 1, "orders-b": 2})
    assert left.refusal("orders-a") is None
    left.take("orders-a")
    assert left.refusal("orders-a") is not None
    assert left.refusal("bills") is None
    why = left.refusal("orders-b")
    assert why is not None
    assert why.detail.startswith("2 records for orders-b wait")
    assert why.detail.endswith("(admission.per_target)")


def test_a_target_that_is_not_counted_by_name_may_have_as_many_as_all_such_targets() -> None:
    left = room(AdmissionRules(None, {"*": 5}), {"orders": 0}, others=4)
    assert left.holds(entries("bills"))
    assert not left.holds(entries("bills", "bills"))
    left.take("bills")
    assert left.refusal("bills") is not None
    assert left.refusal("orders") is None


def test_targets_that_no_pattern_fits_have_none() -> None:
    left = room(AdmissionRules(None, {"orders": 1}), {"bills": 9_999})
    assert left.holds(entries("bills", "bills"))
    assert left.refusal("bills") is None
