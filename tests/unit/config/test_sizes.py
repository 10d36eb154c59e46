"""Sizes as people write them."""

import pytest

from proxy.config.values import parse_size_bytes, shown_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0", 0), ("1048576", 1 << 20), ("64KiB", 1 << 16), ("256MiB", 1 << 28), ("1TiB", 1 << 40)],
)
def test_sizes_are_bytes_or_have_a_unit(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "2GB", "2 GiB", "1.5GiB", "-1", "2gib", "GiB", "2GiB ", "٣", "9" * 16]
)
def test_what_is_no_size_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: write bytes") as refused:
        parse_size_bytes(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [(17, "17 bytes"), (1536, "1.5 KiB"), (268_435_456, "256 MiB"), (1 << 40, "1 TiB")],
)
def test_sizes_are_shown_in_the_largest_unit_that_they_reach(size_bytes: int, shown: str) -> None:
    assert shown_size(size_bytes) == shown
