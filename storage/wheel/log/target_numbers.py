"""Target names as the small numbers that index records carry."""

from collections.abc import Container


class TargetNumbers(dict[str, int]):
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

    def used(self, targets: Container[str]) -> dict[int, str]:
        """The names among `targets`, by number."""
        return {number: name for number, name in self.by_number.items() if name in targets}

    def keep(self, numbers: Container[int]) -> None:
        """Forget every name whose number is not among `numbers`: nothing pending uses it."""
        for number in [number for number in self.by_number if number not in numbers]:
            del self[self.by_number.pop(number)]
