"""The default file equals the settings model, and explains every key."""

import pickle
import re

import pytest
import yaml
from pydantic import ValidationError

from proxy.config.settings import Settings
from proxy.config.sources import DEFAULT_FILE, KeyPath, known_paths, load_settings


def keys_of(section: object, path: KeyPath = ()) -> set[KeyPath]:
    if not isinstance(section, dict):
        return set()
    found = set()
    for key, value in section.items():
        found |= {(*path, key)} | keys_of(value, (*path, key))
    return found


def written() -> set[KeyPath]:
    return keys_of(yaml.safe_load(DEFAULT_FILE.read_text("utf-8")))


def test_every_setting_stands_in_the_default_file() -> None:
    assert set(known_paths()) - written() == set()


def test_every_key_of_the_default_file_is_a_setting() -> None:
    assert written() - set(known_paths()) == {("kafka", "bootstrap.servers")}


def test_the_default_file_states_the_defaults() -> None:
    assert load_settings(DEFAULT_FILE) == Settings()


def test_every_key_of_the_default_file_has_a_comment_above_it() -> None:
    lines = DEFAULT_FILE.read_text("utf-8").splitlines()
    bare = [
        line
        for above, line in zip(["", *lines], lines, strict=False)
        if re.match(r" *[\w.]+:", line) and not above.lstrip().startswith("#")
    ]
    assert bare == []


def test_settings_cannot_be_changed_and_travel_to_other_processes() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.group_id = "other"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 (our own bytes)
