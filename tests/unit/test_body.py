"""Records to bytes and back."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.body import Content, asks_for_partition, delivery, packer, unpacked

maybe_bytes = st.none() | st.binary(max_size=50)
headers = st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=5)
contents = st.tuples(st.integers(-1, 2**31 - 1), maybe_bytes, maybe_bytes, headers)


@given(st.lists(contents, max_size=10))
def test_every_byte_comes_back(batch: list[Content]) -> None:
    """What is unpacked is what the producer sent, one by one and in a row."""
    pack = packer()
    entries = [(5, offset, "orders", pack(content)) for offset, content in enumerate(batch)]
    in_a_row = [(*content[:3], list(content[3])) for content in unpacked(entries)]
    assert in_a_row == batch
    assert [delivery(entry)[3:] for entry in entries] == batch


@given(contents)
def test_a_partition_asked_for_is_seen_without_unpacking(content: Content) -> None:
    """Only -1 asks for none."""
    assert asks_for_partition(packer()(content)) == (content[0] != -1)
