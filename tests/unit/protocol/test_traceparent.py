"""Valid values of `traceparent` (W3C Trace Context, 3.2)."""

import pytest

from proxy.protocol.headers import TraceParent, read_traceparent

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (f"00-{TRACE_ID}-{PARENT_ID}-01", True),
        (f"00-{TRACE_ID}-{PARENT_ID}-00", False),
        (f"00-{TRACE_ID}-{PARENT_ID}-02", False),
        (f"00-{TRACE_ID}-{PARENT_ID}-03", True),
        (f"cc-{TRACE_ID}-{PARENT_ID}-01-what-the-future-will-be-like", True),
    ],
)
def test_valid_one_names_a_span_and_says_whether_it_is_recorded(
    text: str, is_sampled: bool
) -> None:
    assert read_traceparent(text.encode()) == TraceParent(TRACE_ID, PARENT_ID, is_sampled)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"",
        b"7",
        b"\xff\xfe",
        f"ff-{TRACE_ID}-{PARENT_ID}-01".encode(),
        f"00-{TRACE_ID}-{PARENT_ID}-01-more".encode(),
        f"00-{TRACE_ID}-{PARENT_ID}-0x".encode(),
        f"00-{TRACE_ID.upper()}-{PARENT_ID}-01".encode(),
        f"00-{'0' * 32}-{PARENT_ID}-01".encode(),
        f"00-{TRACE_ID}-{'0' * 16}-01".encode(),
        f"00-{TRACE_ID}-{PARENT_ID}-01\n".encode(),
        f" 00-{TRACE_ID}-{PARENT_ID}-01".encode(),
    ],
)
def test_any_other_is_none(raw: bytes | None) -> None:
    assert read_traceparent(raw) is None
