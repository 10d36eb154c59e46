"""Filters of dead letters."""

import pytest

from proxy.dead_letters.replay_plan import Selection, read_moment_ms, read_reasons
from tests.support.dead_letters import a_letter, letter_headers

NOW_MS = 1_800_000_000_000


def test_without_filters_everything_is_taken_even_a_strangers_record() -> None:
    assert Selection().is_all
    assert Selection().takes(a_letter(headers=[]))


@pytest.mark.parametrize(
    ("selection", "is_taken"),
    [
        (Selection(reasons=("too-large", "target-refused")), True),
        (Selection(reasons=("too-large",)), False),
        (Selection(targets=("secret-*",)), True),
        (Selection(targets=("orders", "secret-orders")), True),
        (Selection(targets=("Secret-*",)), False),
        (Selection(origins=("timer.ingress/1/*",)), True),
        (Selection(origins=("timer.ingress/1/7",)), True),
        (Selection(origins=("timer.ingress/0/*",)), False),
        (Selection(from_ms=1_000), True),
        (Selection(from_ms=1_001), False),
        (Selection(to_ms=1_001), True),
        (Selection(to_ms=1_000), False),
        (Selection(("target-refused",), ("secret-*",), ("*/1/7",), 1_000, 1_001), True),
        (Selection(("target-refused",), ("secret-*",), ("*/1/8",), 1_000, 1_001), False),
    ],
)
def test_letter_is_taken_when_every_filter_takes_it(selection: Selection, is_taken: bool) -> None:
    assert selection.takes(a_letter(timestamp_ms=1_000)) is is_taken


def test_record_without_what_is_filtered_by_is_not_taken() -> None:
    stranger = a_letter(headers=[])
    assert not Selection(reasons=("too-large",)).takes(stranger)
    assert not Selection(targets=("*",)).takes(stranger)


def test_letter_of_a_replayed_record_is_found_by_its_first_origin_too() -> None:
    headers = letter_headers(more=[("timer-first-origin", b"timer.ingress/0/3")])
    assert Selection(origins=("timer.ingress/0/3",)).takes(a_letter(headers=headers))


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("2h", NOW_MS - 7_200_000),
        ("PT30S", NOW_MS - 30_000),
        ("1767258000000", 1_767_258_000_000),
        ("2026-01-01T09:00:00Z", 1_767_258_000_000),
    ],
)
def test_time_is_an_age_or_epoch_ms_or_rfc_3339(text: str, moment_ms: int) -> None:
    assert read_moment_ms(text, NOW_MS) == moment_ms


@pytest.mark.parametrize("text", ["yesterday", "2026-01-01", "", "2h ago"])
def test_time_of_another_form_is_refused_with_all_forms_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"epoch milliseconds.*RFC 3339.*or an age"):
        read_moment_ms(text, NOW_MS)


def test_reason_that_no_letter_can_have_is_refused_with_the_nearest() -> None:
    assert read_reasons(["too-large"]) == ("too-large",)
    with pytest.raises(ValueError, match="did you mean target-refused"):
        read_reasons(["target-refuse"])
    with pytest.raises(ValueError, match="reasons are .*body-gone"):
        read_reasons(["xyz"])
