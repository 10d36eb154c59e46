"""JSON texts that break a program without limits."""

from typing import Final

HOSTILE: Final = {
    "nested lists": b"[" * 50_000,
    "nested lists that end": b"[" * 5_000 + b"]" * 5_000,
    "nested objects": b'{"a":' * 50_000,
    "nested behind a text": b'{"topic_id": "\\"[", "policies": ' + b"[" * 50_000,
    "infinity": b"Infinity",
    "infinity in a field": b'{"v": Infinity, "at": Infinity, "next_offset": Infinity}',
    "minus infinity": b'{"policies": [[-Infinity, "x"]], "topic_id": "id"}',
    "no number": b'{"resumed_at": NaN}',
    "a fraction beyond all": b'{"at": 1e999}',
    "digits": b"9" * 5_000,
    "digits in a field": b'{"per_second": ' + b"9" * 5_000 + b"}",
    "more than 64 bits": b'{"at": 9223372036854775808, "as": "x"}',
    "a name twice": b'{"a": 1, "a": 2}',
    "half a character": b'{"origin": "\\ud800", "outcome": "\\uDfff"}',
    "no UTF-8": b'"\xff"',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "nothing": b"",
    "a text without an end": b'"' + b"\\" * 50_001,
    "a text of a mebibyte": b'"' + b"x" * (1 << 20) + b'"',
}
