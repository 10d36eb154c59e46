"""How much may wait: records and bytes, in all and for each target."""

from proxy.scheduling.admission_rules import AdmissionRules, Limits, Room, Waiting
from storage.store import Entry, TargetCounts


def entry(target: str, size_bytes: int = 0) -> Entry:
    return 1, 0, target, bytes(size_bytes)


def entries(*targets: str, size_bytes: int = 0) -> list[Entry]:
    return [entry(target, size_bytes) for target in targets]


def counted(waiting: dict[str, int], others: int = 0) -> Waiting:
    counts = TargetCounts(waiting, others)
    return Waiting(counts.total, counts)


def room(limits: Limits, waiting: dict[str, int], others: int = 0) -> Room:
    return Room(AdmissionRules(limits), counted(waiting, others), Waiting(0))


def room_for_bytes(limits: Limits, waiting: dict[str, int], others: int = 0) -> Room:
    return Room(AdmissionRules(sizes=limits), Waiting(10**9), counted(waiting, others))


def refusal(left: Room, target: str, size_bytes: int = 0) -> str:
    why = left.refusal(entry(target, size_bytes))
    assert why is None or why.code == "too-many"
    return "" if why is None else why.detail


def test_without_counts_by_target_the_limit_in_all_counts_alone() -> None:
    left = Room(AdmissionRules(Limits(5, {"*": 1})), Waiting(3), Waiting(0))
    left.take(entry("orders"))
    assert not refusal(left, "orders")
    left.take(entry("orders"))
    assert refusal(left, "orders").endswith("(admission.records)")


def test_what_waits_and_what_is_taken_count_together() -> None:
    left = room(Limits(3), {"orders": 1})
    assert left.holds(entries("orders", "bills"))
    assert not left.holds(entries("orders", "bills", "bills"))
    left.take(entry("orders"))
    assert not refusal(left, "bills")
    left.take(entry("bills"))
    why = refusal(left, "orders")
    assert why.startswith("3 records wait in this ingress partition")
    assert why.endswith("(admission.records)")


def test_each_target_has_a_limit_of_its_own_by_the_first_pattern_that_fits() -> None:
    left = room(Limits(None, {"orders-*": 2, "*": 1}), {"orders-a": 1, "orders-b": 2})
    assert not refusal(left, "orders-a")
    left.take(entry("orders-a"))
    assert refusal(left, "orders-a")
    assert not refusal(left, "bills")
    why = refusal(left, "orders-b")
    assert why.startswith("2 records for orders-b wait")
    assert why.endswith("(admission.per_target)")


def test_a_target_that_is_not_counted_by_name_may_have_as_many_as_all_such_targets() -> None:
    left = room(Limits(None, {"*": 5}), {"orders": 0}, others=4)
    assert left.holds(entries("bills"))
    assert not left.holds(entries("bills", "bills"))
    left.take(entry("bills"))
    assert refusal(left, "bills")
    assert not refusal(left, "orders")


def test_targets_that_no_pattern_fits_have_none() -> None:
    left = room(Limits(None, {"orders": 1}), {"bills": 9_999})
    assert left.holds(entries("bills", "bills"))
    assert not refusal(left, "bills")


def test_bytes_have_a_limit_up_to_which_smaller_records_still_fit() -> None:
    left = room_for_bytes(Limits(1_000), {"orders": 700})
    assert left.holds(entries("orders", "bills", size_bytes=150))
    assert not left.holds(entries("orders", "bills", size_bytes=151))
    left.take(entry("orders", 200))
    assert not refusal(left, "bills", 100)
    assert refusal(left, "bills", 101) == (
        "900 bytes wait in this ingress partition; 101 more, as this record takes, would be beyond "
        "what the proxy may keep (admission.bytes)"
    )


def test_a_record_larger_than_all_that_may_wait_never_fits() -> None:
    assert refusal(room_for_bytes(Limits(1_000), {}), "orders", 1_001).startswith("0 bytes wait")


def test_each_target_has_bytes_of_its_own() -> None:
    left = room_for_bytes(Limits(None, {"orders": 500, "*": 100}), {"orders": 450}, others=90)
    assert left.holds([entry("orders", 50), entry("bills", 10)])
    assert not left.holds([entry("orders", 50), entry("bills", 11)])
    assert not refusal(left, "orders", 50)
    left.take(entry("orders", 50))
    assert not refusal(left, "bills", 10)
    why = refusal(left, "orders", 1)
    assert why.startswith("500 bytes for orders wait in this ingress partition; 1 more")
    assert why.endswith("(admission.bytes_per_target)")


def test_limits_of_records_and_of_bytes_count_side_by_side() -> None:
    rules = AdmissionRules(Limits(2), Limits(100))
    left = Room(rules, Waiting(1), Waiting(60))
    assert refusal(left, "orders", 41).endswith("(admission.bytes)")
    left.take(entry("orders", 0))
    assert refusal(left, "orders", 0).endswith("(admission.records)")


def test_no_limits_are_no_rules() -> None:
    assert not AdmissionRules()
    assert AdmissionRules(Limits(None, {"*": 1}))
    assert AdmissionRules(sizes=Limits(1))
