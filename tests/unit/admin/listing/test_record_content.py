"""Record contents as people read them."""

from base64 import b64decode

from proxy.admin.record_content import HEADERS, OTHER_BYTES, VALUE_BYTES, content_of
from proxy.protocol.body import Headers


def test_text_is_shown_as_text_and_all_else_as_base64() -> None:
    shown = content_of("ключ".encode(), b"\xff\0", [("a", b""), ("a", None)])
    assert shown["key"] == {"text": "ключ", "bytes": 8, "cut": False}
    assert shown["value"]["base64"] == "/wA="
    assert shown["headers"] == [
        {"name": "a", "value": {"text": "", "bytes": 0, "cut": False}},
        {"name": "a", "value": None},
    ]


def test_what_is_long_is_cut_and_says_so() -> None:
    text = "é" * VALUE_BYTES
    headers: Headers = [("h", b"\xff" * 5_000)] * (HEADERS + 2)
    shown = content_of(b"k", b"a" + text.encode(), headers)
    assert shown["value"]["text"] == "a" + "é" * (VALUE_BYTES // 2 - 1)
    assert (shown["value"]["bytes"], shown["value"]["cut"]) == (2 * VALUE_BYTES + 1, True)
    assert len(b64decode(shown["headers"][0]["value"]["base64"])) == OTHER_BYTES
    assert (len(shown["headers"]), shown["headers_left_out"]) == (HEADERS, 2)
