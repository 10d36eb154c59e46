"""Whether the proxy itself wrote a record to the ingress: the audit's own reading of the MAC
(docs/exactly-once.md#who-may-hop), as column expressions.

HMAC-SHA256 by its definition (RFC 2104), since Spark has no more than SHA-256: the key, padded to a
block, is known to the driver.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.records.header_names import HOP_MAC

KEY_PREFIX: Final = "hop-key/"
"""What their records' keys in the settings topic begin with; the digest follows."""
BLOCK_BYTES: Final = 64
INNER: Final = 0x36
OUTER: Final = 0x5C
MAC_DIGITS: Final = 32
DIGEST_DIGITS: Final = 16


class HopKeys(NamedTuple):
    """Secrets by digest, and the id of the ingress topic whose records they are for."""

    topic_id: str
    secrets: Mapping[str, bytes]


def hop_key(record_key: bytes, text: bytes) -> tuple[str, bytes]:
    """Digest and secret, of a record of the settings topic; raises ValueError if it is no key."""
    secret = bytes.fromhex(text.decode())
    digest = sha256(secret).hexdigest()[:DIGEST_DIGITS]
    if record_key != f"{KEY_PREFIX}{digest}".encode():
        raise ValueError("it is another key's")
    return digest, secret


def padded(secret: bytes, pad: int) -> str:
    """The key's block for the INNER or the OUTER hash, in hexadecimal."""
    return bytes(byte ^ pad for byte in secret.ljust(BLOCK_BYTES, b"\0")).hex()


def is_own(partition: Column, key: Column, value: Column, headers: Column, by: Column) -> Column:
    """Whether a record's last header is its MAC; `by` has hop_topic_id, hop_inner and hop_outer."""
    signed = f.slice(headers, f.lit(1), f.size(headers) - 1)
    text = f.concat_ws(
        ",",
        by["hop_topic_id"],
        partition.cast("string"),
        _hex(key),
        f.coalesce(f.sha2(value, 256), f.lit("-")),
        f.flatten(f.transform(signed, lambda h: f.array(_hex(h["key"]), _hex(h["value"])))),
    )
    inner = f.sha2(f.concat(f.unhex(by["hop_inner"]), text.cast("binary")), 256)
    mac = f.sha2(f.concat(f.unhex(by["hop_outer"]), f.unhex(inner)), 256)
    last = f.element_at(headers, -1)
    said = last["value"].cast("string")
    return (last["key"] == HOP_MAC) & said.eqNullSafe(f.left(mac, f.lit(MAC_DIGITS)))


def _hex(content: Column) -> Column:
    return f.coalesce(f.lower(f.hex(content)), f.lit("-"))
