"""Which values of `traceparent` have a trace-id (W3C Trace Context, 3.2)."""

import pytest

from proxy.cli.trace.chain.traceparent import trace_id_of

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    "text",
    [
        f"00-{TRACE_ID}-{PARENT_ID}-01",
        f"00-{TRACE_ID}-{PARENT_ID}-00",
        f"cc-{TRACE_ID}-{PARENT_ID}-01-what-the-future-will-be-like",
    ],
)
def test_valid_one_has_a_trace_id(text: str) -> None:
    assert trace_id_of(text.encode()) == TRACE_ID


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"",
        b"7",
        b"\xff\xfe",
        f"ff-{TRACE_ID}-{PARENT_ID}-01".encode(),
        f"00-{TRACE_ID}-{PARENT_ID}-01-more".encode(),
        f"00-{TRACE_ID.upper()}-{PARENT_ID}-01".encode(),
        f"00-{'0' * 32}-{PARENT_ID}-01".encode(),
        f"00-{TRACE_ID}-{'0' * 16}-01".encode(),
        f"00-{TRACE_ID}-{PARENT_ID}-01\n".encode(),
        f" 00-{TRACE_ID}-{PARENT_ID}-01".encode(),
    ],
)
def test_any_other_has_none(raw: bytes | None) -> None:
    assert trace_id_of(raw) is None
