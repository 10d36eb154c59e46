"""Hashes and signatures in SQL: fingerprints, murmur2, HMAC."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from spark_jobs.records.headers import HOP_MAC, NOT_IN_A_LETTER, PREFIX
from spark_jobs.runtime.frames import Schema, quoted

# Kafka's Java client chooses the partition of a key by a number: murmur2 with Kafka's seed
# (org.apache.kafka.clients.producer.internals.BuiltInPartitioner). Apache Commons' MurmurHash2
# comes with Spark and computes the number for UTF-8 text in half a microsecond. SQL computes it for
# other keys, in some ten microseconds.

JAVA_CLASS: Final = "org.apache.commons.codec.digest.MurmurHash2"
SEED: Final = 0x9747_B28C
MULTIPLIER: Final = 0x5BD1_E995
LOW_32_BITS: Final = 0xFFFF_FFFF
POSITIVE: Final = 0x7FFF_FFFF
WORD_BYTES: Final = 4


def key_number(key: str) -> str:
    """Return SQL of a binary key's number: bigint from 0 to 2^31 - 1, null if there is no key.
    The key's partition is this number modulo the number of partitions.
    """
    text = f"CAST({key} AS string)"
    of_text = f"CAST(reflect('{JAVA_CLASS}', 'hash32', {text}) AS bigint)"
    number = f"IF(is_valid_utf8({text}), {of_text}, {_of_bytes(key)})"
    return f"IF({key} IS NOT NULL, {number} & {POSITIVE}, NULL)"


def text_key_number(text: str) -> str:
    """Return SQL of a text key's number: null without a key, which the Java class rejects."""
    of_text = f"reflect('{JAVA_CLASS}', 'hash32', {text})"
    return f"(CAST(IF({text} IS NULL, NULL, {of_text}) AS bigint) & {POSITIVE})"


def _of_bytes(key: str) -> str:
    """Return SQL of murmur2 as a bigint. `transform` over one value gives the value a name."""
    hashed = f"transform(array(hex({key})), digits -> {_all_words(f'octet_length({key})')})"
    mixed = f"transform({hashed}, h -> {_times(_xor_shifted('h', 13))})"
    return f"get(transform({mixed}, h -> {_xor_shifted('h', 15)}), 0)"


def _all_words(size: str) -> str:
    whole = f"({size} - {size} % {WORD_BYTES})"
    starts = f"IF({whole} > 0, sequence(0, {whole} - 1, {WORD_BYTES}), NULL)"
    words = f"transform({starts}, at -> {_times(_bytes_at('at', WORD_BYTES))})"
    mixed = f"transform({words}, word -> {_times(_xor_shifted('word', 24))})"
    seed = f"({SEED} ^ CAST({size} AS bigint))"
    hashed = f"coalesce(aggregate({mixed}, {seed}, (h, word) -> {_times('h')} ^ word), {seed})"
    rest = _times(f"({hashed} ^ {_bytes_at(whole, WORD_BYTES - 1)})")
    return f"IF({size} = {whole}, {hashed}, {rest})"


def _bytes_at(at: str, count: int) -> str:
    pairs = [f"substr(digits, ({at} + {n}) * 2 + 1, 2)" for n in reversed(range(count))]
    return f"CAST(conv(concat({', '.join(pairs)}), 16, 10) AS bigint)"


def _times(number: str) -> str:
    return f"(({number} * {MULTIPLIER}) & {LOW_32_BITS})"


def _xor_shifted(number: str, bits: int) -> str:
    return f"({number} ^ shiftrightunsigned({number}, {bits}))"


# Fingerprints (64 bits of xxHash) of all parts that must arrive unchanged. xxhash64 skips nulls. So
# a flag is hashed, too: whether the part is null.

FINGERPRINTS: Final[Schema] = {
    "key_hash": "bigint",
    "value_hash": "bigint",
    "headers_hash": "bigint",
    "letter_hash": "bigint",
}
"""Hashes of target key, value, user's headers, and (`letter_hash`) a dead letter's content."""
_NOT_SAID_ANEW: Final = f"header -> header.key NOT IN {quoted(NOT_IN_A_LETTER)}"


def policy_digest(text: bytes) -> str:
    """Return the key of a policy's JSON in the settings topic."""
    return sha256(text).hexdigest()[:16]


def content_bytes(key: str, value: str, large_bytes: str) -> str:
    """Return SQL of the size of key and value. `large_bytes`: as in RECORDS."""
    sizes = " + ".join(f"coalesce(octet_length({one}), 0)" for one in (key, value))
    return f"coalesce({large_bytes}, CAST({sizes} AS bigint))"


def headers_bytes(headers: str) -> str:
    """Return SQL of the size of headers, names and values."""
    values = f"array_join(transform({headers}.value, one -> hex(one)), '')"
    names = f"octet_length(array_join({headers}.key, ''))"
    return f"CAST({names} + octet_length({values}) / 2 AS bigint)"


def headers_hash(headers: str) -> str:
    """Return SQL of the hash of the user's headers, in order."""
    return plain_hash(f"filter({headers}, header -> NOT startswith(header.key, '{PREFIX}'))")


def letter_hash(key: str, headers: str) -> str:
    """Return SQL of the hash of a record's key and of the headers that a dead letter repeats."""
    said_anew = f"array{quoted(NOT_IN_A_LETTER)}"
    shown = f"""
      IF(arrays_overlap({headers}.key, {said_anew}),
        filter({headers}, {_NOT_SAID_ANEW}), {headers})"""
    return f"xxhash64({key}, {key} IS NULL, {plain_hash(shown)})"


def is_bare_letter(key: str, value: str, headers: str) -> str:
    """Return SQL: whether a dead letter repeats nothing of its ingress record."""
    shown = f"size(filter({headers}, {_NOT_SAID_ANEW}))"
    return f"({key} IS NULL AND {value} IS NULL AND {shown} = 0)"


def plain_hash(headers: str) -> str:
    """Return SQL of the hash of all headers. If some may be null, null flags are hashed, too."""
    nulls = f"transform({headers}, header -> header.value IS NULL)"
    return f"""
      IF(NOT arrays_overlap(({headers}).value, array(X'')),
        xxhash64({headers}), xxhash64({headers}, {nulls}))"""


# The audit's own check of the MAC by which the proxy signs its records in the ingress
# (docs/exactly-once.md#who-may-hop). Spark has only SHA-256, so this is HMAC by its definition (RFC
# 2104) over a padded key.

KEY_PREFIX: Final = "hop-key/"
"""In the settings topic, the record of a secret has this prefix and the digest as its key."""
BLOCK_BYTES: Final = 64
INNER: Final = 0x36
OUTER: Final = 0x5C
MAC_DIGITS: Final = 32
DIGEST_DIGITS: Final = 16


class HopKeys(NamedTuple):
    """Secrets by digest, and the id of the ingress topic whose records they sign."""

    topic_id: str
    secrets: Mapping[str, bytes]


def hop_key(record_key: bytes, text: bytes) -> tuple[str, bytes]:
    """Return digest and secret of a settings record. Raises ValueError for other records."""
    secret = bytes.fromhex(text.decode())
    digest = sha256(secret).hexdigest()[:DIGEST_DIGITS]
    if record_key != f"{KEY_PREFIX}{digest}".encode():
        raise ValueError("the record's key has the digest of another secret")
    return digest, secret


def padded(secret: bytes, pad: int) -> str:
    """Return the padded secret for the INNER or OUTER hash of HMAC, in hexadecimal."""
    return bytes(byte ^ pad for byte in secret.ljust(BLOCK_BYTES, b"\0")).hex()


def is_signed(partition: str, key: str, value: str, headers: str, policy: str) -> str:
    """Return SQL: whether a record's last header is the MAC that the policy's key gives."""
    signed = f"slice({headers}, 1, size({headers}) - 1)"
    shown = f"flatten(transform({signed}, h -> array({_hex('h.key')}, {_hex('h.value')})))"
    text = f"""
      concat_ws(',', {policy}.hop_topic_id, CAST({partition} AS string), {_hex(key)},
        coalesce(sha2({value}, 256), '-'), {shown})"""
    inner = f"sha2(concat(unhex({policy}.hop_inner), CAST({text} AS binary)), 256)"
    mac = f"sha2(concat(unhex({policy}.hop_outer), unhex({inner})), 256)"
    last = f"element_at({headers}, -1)"
    said = f"CAST({last}.value AS string) <=> left({mac}, {MAC_DIGITS})"
    return f"({last}.key = '{HOP_MAC}' AND {said})"


def _hex(content: str) -> str:
    return f"coalesce(lower(hex({content})), '-')"
