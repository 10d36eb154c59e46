from dataclasses import dataclass
from typing import Final

TARGETS: Final = ("orders", "reminders")


@dataclass(frozen=True, slots=True)
class Topics:
    name: str

    @property
    def group(self) -> str:
        return f"{self.name}.proxy"

    @property
    def ingress(self) -> str:
        return f"{self.name}.ingress"

    @property
    def ingress_bytes(self) -> bytes:
        return self.ingress.encode()

    @property
    def dead_letters(self) -> str:
        return f"{self.name}.dead-letters"

    @property
    def outcomes(self) -> str:
        return f"{self.name}.outcomes"

    @property
    def settings(self) -> str:
        return f"{self.name}.settings"

    @property
    def targets(self) -> list[str]:
        return [f"{self.name}.{target}" for target in TARGETS]

    @property
    def own(self) -> tuple[str, ...]:
        return self.ingress, self.dead_letters, self.outcomes, self.settings

    def target(self, slot: int) -> str:
        return f"{self.name}.{TARGETS[slot % len(TARGETS)]}"

    def target_bytes(self, slot: int) -> bytes:
        return self.target(slot).encode()
