"""Entries to bytes and back, and the shapes in which records leave."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.message import BodyCodec, DeadLetter, dead_entry, dead_letter_headers
from proxy.protocol import Headers, Rejection

maybe_bytes = st.none() | st.binary(max_size=50)
headers = st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=5)
entries = st.tuples(
    st.integers(0, 2**50),
    st.integers(0, 2**62),
    st.sampled_from(["orders", "bills"]),
    st.integers(-1, 2**31 - 1),
    maybe_bytes,
    maybe_bytes,
    headers,
)


@given(st.lists(entries, max_size=10))
def test_the_codec_keeps_every_byte(batch: list[tuple[int, int, str, object]]) -> None:
    """What is read back from disk is what the producer sent."""
    codec = BodyCodec()
    bodies = codec.encode(batch)
    dues, offsets, targets = ([entry[n] for entry in batch] for n in range(3))
    back = codec.decode(dues, offsets, targets, bodies)  # type: ignore[arg-type]
    assert [(*e[:6], list(e[6])) for e in back] == [(*e[:6], list(e[6])) for e in batch]  # type: ignore[misc]


def test_an_undeliverable_entry_becomes_the_record_it_was() -> None:
    reason = Rejection("target-unknown", "no such topic")
    asked: Headers = [("timer-topic", b"x"), ("timer-key", b"new"), ("timer-ingress-key", b"own")]
    letter = dead_entry((5, 7, "x", -1, b"new", b"v", asked), reason)
    assert letter == DeadLetter(7, 5, reason, b"own", b"v", asked[:2])


def test_a_dead_letter_that_died_again_tells_its_last_reason_only() -> None:
    letter = DeadLetter(7, None, Rejection("b", "second"), None, None, [("timer-error", b"a")])
    stamped = dead_letter_headers(letter, "timer.ingress/0/7")
    assert [value for name, value in stamped if name == "timer-error"] == [b"b"]
