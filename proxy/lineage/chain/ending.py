"""How one ingress record ended, in words: by which record, and why. Reads nothing."""

from typing import TypeAlias

from proxy.dead_letters.letters.letter import Origin, read_origin
from proxy.dead_letters.letters.remedies import remedy
from proxy.lineage.chain.link import Control, Link
from proxy.lineage.chain.matching import End
from proxy.protocol.headers import DUE, ERROR, ERROR_DETAIL
from proxy.protocol.outcomes import (
    APPLIED,
    CANCELLED,
    DEAD_LETTERED,
    EXPIRED,
    MISSED,
    PURGED_BY,
    REPLACED,
    REQUEUED,
    ROLLED,
    ROLLED_BACK,
)

Words: TypeAlias = tuple[Origin | None, str]
"""The record that shows it, and a sentence."""


def ending(link: Link, end: End) -> Words:
    """What an outcome means for the record."""
    if end.is_move:
        return end.next_origin, "moved to another time"
    if end.what in {ROLLED, REQUEUED}:
        return _went_on(link, end)
    if end.what == REPLACED:
        return end.next_origin, "a later record with the same id"
    if end.what in {CANCELLED, ROLLED_BACK}:
        return _taken_back(link, end)
    if end.what in {DEAD_LETTERED, EXPIRED}:
        return _dead(link, end)
    if end.what in {APPLIED, MISSED}:
        return _applied(link, end)
    return end.place, end.detail


def due_ms_of(link: Link) -> int | None:
    """By what the proxy has written, else by what the record asks for under today's settings."""
    if link.delivery is not None and (stamp_ms := link.delivery.number(DUE)) is not None:
        return stamp_ms
    if link.end is not None and link.end.due_ms is not None:
        return link.end.due_ms
    return None if link.asked is None else link.asked.due_ms


def commit_of(link: Link) -> Control | None:
    """What committed it, of a half message; None where nothing did.

    The first one: a later record can have the same id.
    """
    ender = _ender(link)
    decided = (one for one in link.controls if one is not ender)
    return next((one for one in decided if one.kind in {None, "commit"}), None)


def committed_ms(link: Link, commit: Control) -> int:
    """When; its outcome can have a later stamp than the delivery in the same transaction."""
    return min(commit.end.timestamp_ms, link.ended_ms or commit.end.timestamp_ms)


def _went_on(link: Link, end: End) -> Words:
    why = "before retention could delete it" if end.what == ROLLED else end.detail
    return link.successor, why


def _taken_back(link: Link, end: End) -> Words:
    if end.detail.startswith(PURGED_BY):
        return read_origin(end.detail.removeprefix(PURGED_BY)), "purged"
    control = _ender(link)
    if control is None:
        return None, "by whom is not known any more"
    return control.end.origin, end.detail


def _dead(link: Link, end: End) -> Words:
    letter = link.letter
    if letter is None:
        return None, end.detail
    code, detail = letter.text(ERROR) or "", letter.text(ERROR_DETAIL) or ""
    return letter.place, f"{code}: {detail}. {remedy(code)}"


def _applied(link: Link, end: End) -> Words:
    ended = link.ended
    if ended is None:
        return None, end.detail
    return ended.origin, f"that record ended as {ended.what}"


def _ender(link: Link) -> Control | None:
    """Which control record ended it."""
    kinds = {CANCELLED: {"cancel", "recall"}, ROLLED_BACK: {"rollback"}, EXPIRED: {"expire"}}
    wanted = None if link.end is None else kinds.get(link.end.what)
    if wanted is None:
        return None
    found = (control for control in link.controls if control.kind in {*wanted, None})
    return next(found, None)
