"""Signatures on the proxy's own records, and proofs in recalls."""

import hmac
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple, Self

from proxy.protocol.body import Headers
from proxy.protocol.headers import HOP_MAC

SECRET_BYTES: Final = 32
MAC_DIGITS: Final = 32
DIGEST_DIGITS: Final = 16


class HopKey(NamedTuple):
    """A key for MACs. Policies name it by its digest."""

    secret: bytes

    @classmethod
    def new(cls) -> Self:
        return cls(secrets.token_bytes(SECRET_BYTES))

    @property
    def digest(self) -> str:
        return sha256(self.secret).hexdigest()[:DIGEST_DIGITS]


@dataclass(frozen=True, slots=True)
class HopAuthenticator:
    """Signer and verifier for records of one ingress topic."""

    key: HopKey
    topic_id: str

    def signed(
        self, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Headers:
        return [*headers, (HOP_MAC, self._mac(partition, key, value, headers))]

    def is_own(
        self, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> bool:
        *signed, (name, mac) = headers or [("", None)]
        if name != HOP_MAC or mac is None:
            return False
        return hmac.compare_digest(mac, self._mac(partition, key, value, signed))

    def _mac(
        self, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> bytes:
        value_digest = None if value is None else sha256(value).digest()
        parts = [self.topic_id, str(partition), _hex(key), _hex(value_digest)]
        for name, content in headers:
            parts += name.encode().hex(), _hex(content)
        text = ",".join(parts)
        return hmac.digest(self.key.secret, text.encode(), "sha256").hex()[:MAC_DIGITS].encode()


def _hex(content: bytes | None) -> str:
    return "-" if content is None else content.hex()


NAME_BYTES: Final = 257
"""Length of the names below. It is one more than the longest id, so no name equals an id."""
PROOF_BYTES: Final = 16


def receipt_name(offset: int) -> bytes:
    """Return the name that the register has for the producer's record at `offset`."""
    return b"%0*d" % (NAME_BYTES, offset)


def recall_names(offset: int, proofs: tuple[bytes, ...]) -> list[bytes]:
    """Return the register's names for a recall of the record at `offset`, one for each proof."""
    return [receipt_name(offset) + proof for proof in proofs]


def proofs_of(key: bytes | None, ident: bytes | None) -> tuple[bytes, ...]:
    """Return digests of a record's ingress key and id (docs/exactly-once.md#proofs).
    A recall is proven if it shares a digest with the record to end. Empty values have no digest.
    """
    known = (b"key:", key), (b"id:", ident)
    return tuple(sha256(kind + text).digest()[:PROOF_BYTES] for kind, text in known if text)
