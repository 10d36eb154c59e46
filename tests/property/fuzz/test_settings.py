"""Random settings files and variables give settings, or an error without secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from proxy.config.settings import Settings
from proxy.config.sources import known_paths, load_settings, variable_name
from proxy.errors import SettingsError

SECRET = "a-secret-that-must-not-be-shown"
FEW = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))

paths = sorted(known_paths())
words = st.sampled_from(
    ["~", "-1", "9" * 400, "1e999", ".inf", ".nan", "0x", "auto", "366d", "[]", "{}", "!!python/x"]
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), words
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)


def loaded(path: Path, content: bytes, variables: Mapping[str, str]) -> Settings | str:
    path.write_bytes(content)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("DELAY_PROXY_")}
    with patch.dict(os.environ, {**kept, **variables}, clear=True):
        try:
            return load_settings(path)
        except SettingsError as refused:
            return str(refused)


def judge(found: Settings | str) -> None:
    if isinstance(found, str):
        assert found
        assert SECRET not in found


@FEW
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
@example(b"")
@example(b"\x00")
@example(b"\xff\xfe")
@example(b"? [a]: b")
@example(b"&a [*a]")
@example(b"a: &a\n  b: *a")
@example(b"- topics")
@example(b"kafka: {? {a: b} : c}")
@example(b"1: 2")
@example(b"~: ~")
@example(b"topics: 2001-99-99")
@example(b"levels: " + b"[" * 5_000)
@example(b"log: !!python/object/apply:os.system [true]")
def test_any_file_gives_settings_or_a_sentence(tmp_path: Path, content: bytes) -> None:
    """Invariant: any file gives settings or an error sentence."""
    judge(loaded(tmp_path / "proxy.yaml", content, {}))


@FEW
@given(st.sampled_from(paths), trees)
@example(("admin", "token"), {SECRET: SECRET})
@example(("kafka",), {"sasl.password": [SECRET]})
@example(("kafka",), [SECRET])
@example(("retry", "groups"), {"g": 1})
@example(("wheel", "slots"), 10**400)
def test_any_value_at_any_key_is_followed_or_refused(
    tmp_path: Path, path: tuple[str, ...], tree: object
) -> None:
    """Invariant: any value at any key is used or refused, with any type and range."""
    document = tree
    for name in reversed(path):
        document = {name: document}
    judge(loaded(tmp_path / "proxy.yaml", yaml.safe_dump(document).encode(), {}))


@FEW
@given(st.sampled_from(paths), st.text(st.characters(codec="utf-8", exclude_characters="\x00")))
@example(("admin", "token"), "\x7f")
@example(("admin",), '{"token": "' + SECRET + '"')
@example(("kafka",), '{"sasl.password": ' + SECRET + "}")
@example(("kafka", "sasl.password"), SECRET)
@example(("topics",), "[" * 10_000)
@example(("levels",), "1s " * 10_000)
@example(("workers",), "٣")
def test_any_variable_is_followed_or_refused(
    tmp_path: Path, path: tuple[str, ...], text: str
) -> None:
    """Invariant: any variable is used or refused. Sections take JSON, other variables text."""
    judge(loaded(tmp_path / "proxy.yaml", b"", {variable_name(path): text}))


def test_the_secret_would_be_seen() -> None:
    with pytest.raises(AssertionError):
        judge(SECRET)
