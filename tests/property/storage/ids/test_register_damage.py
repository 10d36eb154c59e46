"""Register files changed while it is closed: the damage is always detected."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TypeAlias
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import StoreDamaged
from storage.folder import boot_id
from storage.ids.register import Register, open_register
from storage.options import IdOptions
from storage.store import Committed, Key, Named

pytestmark = pytest.mark.rest

FAR_MS = 10**12
UNTIL: Key = (2 * FAR_MS, 0)
AT = Committed(0, -1, 0, 150)
IDS = [b"order-%d" % number for number in range(60)]
State: TypeAlias = tuple[dict[bytes, Named], set[Key]]


def filled(folder: Path, seed: int) -> State:
    draw = random.Random(seed)
    options = IdOptions(memtable_entries=20, write_entries=7, merge_entries=9, merged_runs=3)
    register = open_register(folder, Committed(0, -1, 0, 0), options)
    for offset in range(150):
        named = Named(offset, FAR_MS, offset, offset, FAR_MS, f"t{offset % 3}", offset % 4)
        register.put(offset, draw.choice(IDS), named)
        if offset % 5 == 0:
            register.add_tombstone(offset, (FAR_MS, offset), "orders")
        register.maintain(offset, 0)
    register.flush(150, 0)
    state = register.find(IDS), register.tombstones((0, 0), UNTIL)
    register.close()
    return state


def is_found_out_or_harmless(folder: Path, state: State, is_restarted: bool = True) -> bool:
    """Return whether the reopened register is intact, empty, or reports damage."""
    with patch("storage.ids.register.boot_id", lambda: "another" if is_restarted else boot_id()):
        register = open_register(folder, AT)
    try:
        found = register.find(IDS), register.tombstones((0, 0), UNTIL)
        kinds = [kind_of(register, bit) for bit in (1, 2)]
    except StoreDamaged:
        register.close()
        return not is_restarted and not open_register(folder, AT).covered
    expected = state if register.covered else ({}, set())
    return found == expected and kinds == [
        {ident for ident, named in expected[0].items() if named.kind & bit} for bit in (1, 2)
    ]


def kind_of(register: Register, bit: int) -> set[bytes]:
    return {ident for ident, _ in register.of_kind(bit)}


def some_file(folder: Path, choice: int) -> Path:
    files = sorted(folder.iterdir())
    return files[choice % len(files)]


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 20),
    choice=st.integers(0, 20),
    place=st.floats(0, 1),
    bit=st.integers(0, 7),
    is_restarted=st.booleans(),
)
def test_a_flipped_bit_anywhere(
    seed: int, choice: int, place: float, bit: int, is_restarted: bool
) -> None:
    """Invariant: with any flipped bit the register is intact, empty, or reports damage."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "ids"
        state = filled(folder, seed)
        path = some_file(folder, choice)
        data = bytearray(path.read_bytes())
        data[int(place * (len(data) - 1))] ^= 1 << bit
        path.write_bytes(data)
        assert is_found_out_or_harmless(folder, state, is_restarted)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 20), choice=st.integers(0, 20), place=st.floats(0, 1))
def test_a_file_cut_short(seed: int, choice: int, place: float) -> None:
    """Invariant: with any file cut or missing the register is intact or empty."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "ids"
        state = filled(folder, seed)
        path = some_file(folder, choice)
        kept_bytes = int(place * path.stat().st_size)
        path.write_bytes(path.read_bytes()[:kept_bytes])
        if not kept_bytes:
            path.unlink()
        assert is_found_out_or_harmless(folder, state)
