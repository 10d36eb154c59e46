"""Ingress retention, and the time for which the proxy needs the records."""

from __future__ import annotations

import pytest

from proxy.config.policy_from_settings import aging_after_ms, needed_ms, refuse_unfit
from proxy.config.settings import Settings
from proxy.errors import SettingsError

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("roll_after_ms", "retention_ms", "expected"),
    [(HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS // 2), (None, HOUR_MS, None), (HOUR_MS, None, None)],
)
def test_too_old_is_half_way_between_rewriting_and_deletion(
    roll_after_ms: int | None, retention_ms: int | None, expected: int | None
) -> None:
    assert aging_after_ms(roll_after_ms, retention_ms) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [({}, 500), ({"roll_after": 300}, 300), ({"max_delay": 100}, 100)],
)
def test_record_is_needed_until_it_is_rewritten_or_has_ended(
    values: dict[str, int], expected: int
) -> None:
    assert needed_ms(Settings.model_validate(values), 1_000) == expected


def test_rewriting_after_the_deletion_is_refused() -> None:
    settings = Settings.model_validate({"roll_after": 1_000})
    for fine_ms in (None, 1_001):
        refuse_unfit(settings, {}, fine_ms)
    with pytest.raises(SettingsError, match="deleted before they are rewritten"):
        refuse_unfit(settings, {}, 1_000)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compacted_ingress_is_refused(policy: str) -> None:
    with pytest.raises(SettingsError, match=r"timer\.ingress is compacted: .* Set cleanup\.policy"):
        refuse_unfit(Settings(), {"cleanup.policy": policy}, None)


def test_ingress_of_which_nothing_may_be_asked_is_not_refused() -> None:
    refuse_unfit(Settings(), {}, None)


def test_ingress_that_keeps_the_producers_time_is_refused_unless_it_is_allowed() -> None:
    config = {"message.timestamp.type": "CreateTime"}
    with pytest.raises(SettingsError, match=r"message\.timestamp\.type=LogAppendTime"):
        refuse_unfit(Settings(), config, None)
    refuse_unfit(Settings.model_validate({"topics": {"allow_create_time": True}}), config, None)
    refuse_unfit(Settings(), {"message.timestamp.type": "LogAppendTime"}, None)


def test_what_ends_before_it_is_rewritten_needs_no_rewriting() -> None:
    settings = Settings.model_validate({"roll_after": "10d", "max_delay": "1d"})
    refuse_unfit(settings, {}, 7 * 24 * HOUR_MS)
