"""Whether what instances say together is all: the partitions they speak for, and who is silent."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from proxy.cli.terminal.output import say
from proxy.config.settings import Settings
from proxy.errors import ProxyError
from proxy.kafka.access.connection import Connection

BROKER_LIMIT_S: Final = 2.0


class InstanceSilent(ProxyError):
    """One of the instances has not answered: what was shown is not all."""


def missing_partitions(settings: Settings, covered: Collection[int]) -> list[int] | None:
    """Partitions of the ingress that no instance has answered for; None where the broker cannot be
    asked how many there are."""
    try:
        connection = Connection(settings)
        connection.limit_s = BROKER_LIMIT_S
        count = len(connection.describe_topic(settings.topics.ingress).partitions)
    except ProxyError:
        return None
    return sorted(set(range(count)).difference(covered))


def shown_partitions(covered: Collection[int]) -> str:
    """Their numbers, for a person."""
    return ", ".join(map(str, sorted(covered))) or "none"


def repeated(covered_by_each: Iterable[Iterable[int]]) -> list[int]:
    """Partitions of which more than one instance has told: one was named twice, or a partition has
    just changed hands."""
    times = Counter(number for covered in covered_by_each for number in covered)
    return sorted(number for number, count in times.items() if count > 1)


def say_repeated(numbers: Collection[int]) -> None:
    """What a sum has in it more than once."""
    if numbers:
        twice = f"Counted more than once: {shown_partitions(numbers)}."
        say(f"{twice} Is an instance named twice, or does one just come or go?")


def say_silent(silent: Mapping[str, str]) -> None:
    """`silent`: address -> why it has not answered."""
    for address, why in silent.items():
        say(f"{address}: {why}")


def say_missing(missing: list[int] | None) -> None:
    """What of the ingress nobody has spoken for."""
    if missing is None:
        say("Whether that is all of the ingress is not known: the broker does not answer.")
    elif missing:
        say(f"Not covered: {shown_partitions(missing)}. Name every instance with --admin.")


def refuse_silent(silent: Mapping[str, str]) -> None:
    """Raises InstanceSilent if there is any. `silent`: address -> why it has not answered."""
    if silent:
        raise InstanceSilent("Not every instance has answered. " + " ".join(silent.values()))
