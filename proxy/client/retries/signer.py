"""Signatures of retry requests, so that a group can tell its own retries from forged ones.

Whoever may write to the ingress can ask the proxy for a retry to any group. The headers that tell a
retry's story are plain. With a key, which only the group's consumers know, they are signed.
"""

import hmac
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from proxy.client.errors import ConfigRefused
from proxy.client.place import Place

SIGNATURE: Final = "retry-signature"
SHORTEST_KEY: Final = 16
FORMAT: Final = re.compile(rb"(?P<attempt>[0-9]{1,9}) (?P<mac>[0-9a-f]{64})")

SigningKey: TypeAlias = str | bytes | Sequence[str | bytes | None]
"""A key, or several: the first signs, all verify. None among them: unsigned retries are taken."""


class Signer:
    """Signs retries, and verifies them. Raises ConfigRefused for keys that it cannot use."""

    def __init__(self, group: str, given: SigningKey) -> None:
        one = isinstance(given, str | bytes) or not isinstance(given, Sequence)
        keys = [given] if one else list(given)
        self._group = group.encode()
        self._keys = [_key(key) for key in keys if key is not None]
        self.takes_unsigned = None in keys
        """While the members of the group get their first key."""
        if not self._keys or keys[0] is None:
            raise ConfigRefused("signing_key has no key at its first place, which signs: give one")

    def signature(
        self, original: Place, attempt: int, key: bytes | None, value: bytes | None
    ) -> bytes:
        """Return the value of the header."""
        mac = self._mac(self._keys[0], original, attempt, key, value)
        return b"%d %s" % (attempt, mac)

    def is_valid(
        self,
        signature: bytes,
        original: Place,
        attempt: int | None,
        key: bytes | None,
        value: bytes | None,
    ) -> bool:
        """Whether a consumer with one of the keys has signed this.

        `attempt` None: a dead letter that was replayed, which begins to count again.
        """
        found = FORMAT.fullmatch(signature)
        if found is None or attempt not in {None, int(found["attempt"])}:
            return False
        signed = int(found["attempt"])
        macs = [self._mac(one, original, signed, key, value) for one in self._keys]
        return any(hmac.compare_digest(found["mac"], mac) for mac in macs)

    def _mac(self, key: bytes, original: Place, attempt: int, *content: bytes | None) -> bytes:
        topic, partition, offset = original
        fields = [self._group, topic.encode("utf-8", "replace")]
        numbers = [b"%d" % number for number in (partition, offset, attempt)]
        signed = hmac.new(key, b"retry-1", "sha256")
        for field in (*fields, *numbers, *content):
            signed.update(b"-" if field is None else b"%d:" % len(field))
            signed.update(field or b"")
        return signed.hexdigest().encode()


def _key(given: object) -> bytes:
    raw = given.encode() if isinstance(given, str) else given
    if not isinstance(raw, bytes):
        raise ConfigRefused(f"signing_key has a {type(given).__name__}: give str or bytes")
    if len(raw) < SHORTEST_KEY:
        raise ConfigRefused(
            f"signing_key has a key of {len(raw)} bytes: use {SHORTEST_KEY} or more, at random "
            "(python -c 'import secrets; print(secrets.token_hex(32))')"
        )
    return raw
