"""Records to bytes and back."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.body import (
    GONE,
    SHAPES,
    Content,
    Purpose,
    body_bytes,
    delivery_of,
    has_purpose,
    is_stub,
    kept_time,
    need_dispatch,
    packer,
    stub,
    unpacked,
)

maybe_bytes = st.none() | st.binary(max_size=50)
headers = st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=5)
DUE_MS = 1_800_000_000_000
times = st.binary(max_size=20) | st.sampled_from(
    [b"%d" % DUE_MS, b"0%d" % DUE_MS, b"%d" % (DUE_MS + 1), b""]
)
contents = st.tuples(st.integers(-1, 2**31 - 1), maybe_bytes, maybe_bytes, headers)


def parts_of(body: bytes) -> tuple[Purpose, Content]:
    found = delivery_of((DUE_MS, 7, "orders", body))
    content = found.partition, found.key, found.value, found.headers
    return Purpose(found.due_ms, found.offset, found.wanted_ms), content


@given(st.lists(contents, max_size=10))
def test_every_byte_comes_back(batch: list[Content]) -> None:
    """Invariant: unpacked records equal the producer's, one by one and in batches."""
    pack = packer()
    entries = [(5, offset, "orders", pack(content)) for offset, content in enumerate(batch)]
    in_a_row = [(*kept[:3], list(kept[3] or ())) for kept in unpacked(entries)]
    assert in_a_row == batch
    assert [parts_of(entry[3])[1] for entry in entries] == batch


@given(st.sampled_from(sorted(SHAPES)), maybe_bytes, maybe_bytes, times)
def test_headers_kept_as_a_shape_come_back_and_need_no_dispatch(
    names: tuple[str, str], key: bytes | None, value: bytes | None, time: bytes
) -> None:
    """Invariant: both headers keep their order, and the key chooses the partition."""
    body = packer()((SHAPES[names], key, value, kept_time(time, DUE_MS)))
    headers = [(name, b"orders" if name == "timer-topic" else time) for name in names]
    assert parts_of(body) == (Purpose(DUE_MS, 7, DUE_MS), (-1, key, value, headers))
    assert not need_dispatch([(1, 2, "orders", body)])
    assert not is_stub(body)
    assert not has_purpose(body)


@given(contents)
def test_a_partition_asked_for_is_seen_without_unpacking(content: Content) -> None:
    """Invariant: only -1 requests no partition."""
    assert need_dispatch([(1, 2, "orders", packer()(content))]) == (content[0] != -1)


@given(contents, st.tuples(*[st.integers(0, 2**62)] * 3))
def test_a_purpose_comes_back_and_is_seen_without_unpacking(
    content: Content, times: tuple[int, int, int]
) -> None:
    """Invariant: a body with a purpose is not a stub and not plain. It returns both parts."""
    purpose = Purpose(*times)
    body = packer()((purpose, *content))
    assert need_dispatch([(1, 2, "orders", body)])
    assert has_purpose(body)
    assert not is_stub(body)
    assert parts_of(body) == (purpose, content)
    assert not has_purpose(packer()(content))
    assert not has_purpose(stub(body))


@given(contents)
def test_a_stub_says_the_size_of_its_body_and_is_told_from_one(content: Content) -> None:
    """Invariant: no body begins as a stub does."""
    body = packer()(content)
    assert not is_stub(body)
    assert is_stub(stub(body))
    assert body_bytes(body) == body_bytes(stub(body)) == len(body)


@given(st.one_of(st.integers(0, 300), st.sampled_from([65_535, 65_536, 1_000_000])))
def test_a_stub_of_any_size_begins_as_no_body_does(size_bytes: int) -> None:
    """Invariant: a stub begins unlike any body, for any encoding of its size."""
    kept = stub(bytes(size_bytes))
    assert is_stub(kept)
    assert len(kept) <= 5


def test_a_record_that_is_gone_asks_for_a_partition() -> None:
    assert need_dispatch([(1, 2, "orders", packer()((GONE, None, None, [])))])
