"""A topic's configuration, as the broker words it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic: name, partitions, configuration as the broker words it (empty: not readable)."""

    name: str
    partitions: int
    config: Mapping[str, str]

    def number(self, key: str) -> int | None:
        """The value of a key as a number; None where it is not known."""
        return number_in(self.config, key)


def number_in(config: Mapping[str, str], key: str) -> int | None:
    """The value of a key as a number; None where it is not known."""
    text = config.get(key, "")
    return int(text) if text.lstrip("-").isdigit() else None
