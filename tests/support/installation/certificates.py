"""Certificate authority for tests, with PEM files for Kafka and librdkafka. No locked package makes
X.509 certificates, and `openssl` is not required. This module has RSA in plain Python and the
necessary part of DER (RFC 5280, RFC 8017)."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final

KEY_BITS: Final = 2048
EXPONENT: Final = 65537
WITNESSES: Final = 12
SMALL_PRIMES: Final = [n for n in range(3, 2000, 2) if all(n % d for d in range(3, n, 2))]
SIGNED_WITH: Final = bytes.fromhex("300d06092a864886f70d01010b0500")  # sha256WithRSAEncryption
RSA: Final = bytes.fromhex("300d06092a864886f70d0101010500")
SHA256_PREFIX: Final = bytes.fromhex("3031300d060960864801650304020105000420")
COMMON_NAME: Final = bytes.fromhex("0603550403")
ALT_NAMES: Final = bytes.fromhex("0603551d11")
BASIC_CONSTRAINTS: Final = bytes.fromhex("0603551d13")
INTEGER, BITS, OCTETS, TEXT, TIME, SEQUENCE, SET = 0x02, 0x03, 0x04, 0x0C, 0x17, 0x30, 0x31
TRUE: Final = bytes.fromhex("0101ff")


@dataclass(frozen=True)
class Key:
    """RSA key as its two primes."""

    p: int
    q: int

    @property
    def modulus(self) -> int:
        return self.p * self.q

    @cached_property
    def private(self) -> int:
        return pow(EXPONENT, -1, (self.p - 1) * (self.q - 1))

    def sign(self, content: bytes) -> bytes:
        """Sign with PKCS #1 v1.5 and SHA-256."""
        size = KEY_BITS // 8
        hashed = SHA256_PREFIX + hashlib.sha256(content).digest()
        padded = b"\x00\x01" + b"\xff" * (size - len(hashed) - 3) + b"\x00" + hashed
        return pow(int.from_bytes(padded), self.private, self.modulus).to_bytes(size)

    @property
    def public_der(self) -> bytes:
        numbers = _der(SEQUENCE, _integer(self.modulus), _integer(EXPONENT))
        return _der(SEQUENCE, RSA, _der(BITS, b"\x00", numbers))

    @property
    def pem(self) -> str:
        """Return the key as PKCS #8, not encrypted."""
        p, q, d = self.p, self.q, self.private
        parts = (0, p * q, EXPONENT, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))
        numbers = _der(SEQUENCE, *map(_integer, parts))
        return _pem("PRIVATE KEY", _der(SEQUENCE, _integer(0), RSA, _der(OCTETS, numbers)))


@dataclass(frozen=True, slots=True)
class Identity:
    certificate: str
    key: str

    def write(self, folder: Path) -> None:
        """Write `certificate.pem` and `key.pem`. Each is replaced in one step, as in a renewal."""
        for name, text in (("certificate.pem", self.certificate), ("key.pem", self.key)):
            arriving = folder / f".{name}"
            arriving.write_text(text, "ascii")
            arriving.replace(folder / name)


class Authority:
    def __init__(self, name: str = "tests") -> None:
        self._name, self.key = name, new_key()
        now = datetime.now(UTC)
        extensions = [_der(SEQUENCE, BASIC_CONSTRAINTS, TRUE, _der(OCTETS, _der(SEQUENCE, TRUE)))]
        self.certificate = self._signed(name, self.key, now + timedelta(days=30), extensions)

    def issue(
        self, name: str, hosts: Sequence[str] = (), valid_for: timedelta = timedelta(days=1)
    ) -> Identity:
        key, until = new_key(), datetime.now(UTC) + valid_for
        names = _der(SEQUENCE, *map(_alt_name, hosts))
        extensions = [_der(SEQUENCE, ALT_NAMES, _der(OCTETS, names))] if hosts else []
        return Identity(self._signed(name, key, until, extensions), key.pem)

    def _signed(self, name: str, key: Key, until: datetime, extensions: list[bytes]) -> str:
        since = min(until, datetime.now(UTC)) - timedelta(hours=1)
        content = _der(
            SEQUENCE,
            _der(0xA0, _integer(2)),
            _integer(secrets.randbits(100)),
            SIGNED_WITH,
            _name(self._name),
            _der(SEQUENCE, _time(since), _time(until)),
            _name(name),
            key.public_der,
            *([_der(0xA3, _der(SEQUENCE, *extensions))] if extensions else []),
        )
        signature = _der(BITS, b"\x00", self.key.sign(content))
        return _pem("CERTIFICATE", _der(SEQUENCE, content, SIGNED_WITH, signature))


def new_key() -> Key:
    """Make a key in about a second."""
    while True:
        p, q = _prime(), _prime()
        if p != q and (p - 1) % EXPONENT and (q - 1) % EXPONENT:
            return Key(max(p, q), min(p, q))


def _prime() -> int:
    half = KEY_BITS // 2
    while True:
        number = secrets.randbits(half) | 3 << (half - 2) | 1
        if all(number % small for small in SMALL_PRIMES) and _is_prime(number):
            return number


def _is_prime(number: int) -> bool:
    """Test with Miller and Rabin."""
    twos = (number - 1 & 1 - number).bit_length() - 1
    for _ in range(WITNESSES):
        power = pow(secrets.randbelow(number - 3) + 2, number >> twos, number)
        powers = [power] + [power := power * power % number for _ in range(twos - 1)]
        if powers[0] != 1 and number - 1 not in powers:
            return False
    return True


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def _integer(number: int) -> bytes:
    return _der(INTEGER, number.to_bytes(number.bit_length() // 8 + 1))


def _name(common: str) -> bytes:
    return _der(SEQUENCE, _der(SET, _der(SEQUENCE, COMMON_NAME, _der(TEXT, common.encode()))))


def _time(moment: datetime) -> bytes:
    return _der(TIME, moment.strftime("%y%m%d%H%M%SZ").encode())


def _alt_name(host: str) -> bytes:
    try:
        return _der(0x87, ipaddress.ip_address(host).packed)
    except ValueError:
        return _der(0x82, host.encode())


def _pem(kind: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = (text[at : at + 64] for at in range(0, len(text), 64))
    return "\n".join((f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""))
