"""The headers with which a letter goes back to the ingress."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from proxy.dead_letters.letters.letter import Letter
from proxy.protocol.body import Headers
from proxy.protocol.headers import FIRST_ORIGIN, ORIGIN, PURGES, STAMPS

HOP_PREFIX: Final = "timer-hop-"
"""Private headers of a record that was rewritten or sent in again by the proxy itself."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Headers to be given another value, or the first one, and headers to be taken out."""

    values: dict[str, bytes] = field(default_factory=dict)
    taken_out: frozenset[str] = frozenset()

    def applied(self, headers: Headers) -> Headers:
        """A header that is set keeps its position and comes once; a new one comes last."""
        edited: Headers = []
        pending = dict(self.values)
        for name, value in headers:
            if name in self.values:
                if name in pending:
                    edited.append((name, pending.pop(name)))
            elif name not in self.taken_out:
                edited.append((name, value))
        return [*edited, *pending.items()]


def read_edits(to_set: Sequence[str], to_unset: Iterable[str]) -> Edits:
    """From `name=value` and `name`. Raises ValueError with a sentence."""
    values: dict[str, bytes] = {}
    for text in to_set:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ValueError(f"{text!r} sets no header: write name=value (timer-topic=orders)")
        if name in values:
            raise ValueError(
                f"the header {name} is set twice: {values[name].decode()!r}, {value!r}"
            )
        values[name] = value.encode()
    taken_out = frozenset(to_unset)
    for name in [*values, *taken_out]:
        _check(name)
    if both := sorted(taken_out & values.keys()):
        raise ValueError(f"the header {both[0]} is both set and unset: say one of them")
    return Edits(values, taken_out)


def requests_of(letter: Letter, headers: Headers, edits: Edits) -> Headers:
    """What the record asks for when it is sent in again: no stamps but the first origin.

    `headers` are the record's own as it lay in the ingress, or the letter's.
    """
    own = [header for header in headers if not is_stamp(header[0])]
    first = letter.first_origin or letter.text(ORIGIN)
    stamp: Headers = [(FIRST_ORIGIN, first.encode())] if first else []
    return [*edits.applied(own), *stamp]


def is_stamp(name: str) -> bool:
    """Whether the proxy wrote this header, and not whoever sent the record."""
    return name in STAMPS or name in PURGES or name.startswith(HOP_PREFIX)


def _check(name: str) -> None:
    if "=" in name:
        raise ValueError(f"{name!r} is no header's name: --unset takes the name alone")
    if is_stamp(name):
        raise ValueError(
            f"{name} is a stamp of the proxy's own and cannot be changed: a replay drops all of "
            f"them, and keeps {FIRST_ORIGIN}"
        )
