"""Target names as the small numbers that index records carry."""

from collections.abc import Iterable


class Names(dict[str, int]):
    """name -> number; asking for an unknown name gives it the next number."""

    def __init__(self, names: dict[int, str], next_number: int) -> None:
        super().__init__((name, number) for number, name in names.items())
        self.by_number = dict(names)
        self.next_number = next_number

    def __missing__(self, name: str) -> int:
        number = self[name] = self.next_number
        self.by_number[number] = name
        self.next_number += 1
        return number

    def keep(self, used: Iterable[str]) -> None:
        """Forget every name that nothing pending uses."""
        kept = set(used)
        for name in [name for name in self if name not in kept]:
            del self.by_number[self.pop(name)]
