"""Targets that refuse their records: logged once a minute, with the age of the records."""

from structlog.testing import capture_logs

from proxy.telemetry.refused_targets import MOST_TARGETS, RefusedTargets

NOW_MS = 1_800_000_000_000
WHY = "not-authorised: the proxy's user may not write to orders; publish attempt 1 of 16"


class Clock:
    now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


def shown(refused: RefusedTargets) -> dict[tuple[str, str], float]:
    (family,) = refused.collect()
    return {(s.labels["target"], s.labels["reason"]): s.value for s in family.samples if s.value}


def test_the_oldest_record_counts_by_its_own_due_until_its_next_attempt_has_passed() -> None:
    clock = Clock()
    refused = RefusedTargets(clock)
    refused.put_off("orders", WHY, NOW_MS - 420_000, NOW_MS + 180_000)
    refused.put_off("orders", WHY, NOW_MS - 1_000, NOW_MS + 10_000)
    assert shown(refused) == {("orders", "not-authorised"): 420.0}
    assert [(one.target, one.records) for one in refused.now()] == [("orders", 2)]
    clock.now_ms += 11_000
    assert [one.records for one in refused.now()] == [1]
    clock.now_ms += 230_000
    assert [one.records for one in refused.now()] == [0], "its age shows until the attempt fails"
    clock.now_ms += 9_000
    assert (shown(refused), refused.now()) == ({}, ())


def test_each_target_and_reason_is_told_once_a_minute() -> None:
    clock = Clock()
    refused = RefusedTargets(clock)
    with capture_logs() as said:
        for _ in range(100):
            refused.put_off("orders", WHY, NOW_MS, NOW_MS + 600_000)
            refused.put_off("bills", "target-unknown: no topic", NOW_MS, NOW_MS + 600_000)
    assert [(line["target"], line["reason"]) for line in said] == [
        ("orders", "not-authorised"),
        ("bills", "target-unknown"),
    ]
    assert "may not write" in said[0]["detail"]
    clock.now_ms += 60_000
    with capture_logs() as said:
        refused.put_off("orders", WHY, NOW_MS, NOW_MS + 600_000)
    assert len(said) == 1


def test_a_flood_of_targets_shares_one_entry() -> None:
    refused = RefusedTargets(Clock())
    with capture_logs() as said:
        for number in range(3 * MOST_TARGETS):
            refused.put_off(f"t{number}", "target-unknown: no topic", NOW_MS - 1, NOW_MS + 600_000)
    assert len(refused.now()) == len(said) == MOST_TARGETS + 1
    assert sum(one.records for one in refused.now()) == 3 * MOST_TARGETS
    assert ("(other)", "target-unknown") in shown(refused)
