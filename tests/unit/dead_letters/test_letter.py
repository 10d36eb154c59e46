"""Dead letters are parsed as the proxy writes them."""

import pytest

from proxy.dead_letters.letter import Origin, Place, read_origin, read_place
from tests.support.dead_letters import a_letter, letter_headers


def test_what_the_proxy_wrote_is_found_in_the_headers() -> None:
    letter = a_letter(headers=letter_headers("too-large", "orders", "in.gress-1/3/12"))
    assert letter.is_ours
    assert (letter.reason, letter.detail, letter.target) == ("too-large", "because", "orders")
    assert letter.origin == Origin("in.gress-1", 3, 12)


def test_record_without_an_error_is_a_strangers() -> None:
    letter = a_letter(headers=[("timer-topic", b"orders"), ("timer-origin", b"junk")])
    assert not letter.is_ours
    assert (letter.reason, letter.origin) == (None, None)


def test_header_that_is_repeated_counts_with_its_last_value() -> None:
    assert a_letter(headers=[("timer-error", b"a"), ("timer-error", b"b")]).reason == "b"


def test_letter_is_named_by_its_place_or_its_origin() -> None:
    assert read_place("0/17") == Place(0, 17)
    assert read_place("timer.ingress/2/4711") == Origin("timer.ingress", 2, 4711)


@pytest.mark.parametrize(
    "text", ["", "17", "0/", "a/b", "0/17/", "in gress/0/1", "0/-1", "0/\u0661"]
)
def test_anything_else_names_no_letter_and_is_told_what_would(text: str) -> None:
    with pytest.raises(ValueError, match="partition/offset"):
        read_place(text)


@pytest.mark.parametrize("text", ["t/2147483648/0", f"t/0/{2**63}", "t/0/" + "9" * 5_000])
def test_origin_beyond_what_kafka_counts_is_none(text: str) -> None:
    assert read_origin(text) is None
    assert read_origin(f"t/2147483647/{2**63 - 1}") == Origin("t", 2**31 - 1, 2**63 - 1)
