"""Parser for this repository's Dockerfile: stages and steps, with build arguments filled in."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_FLAG = re.compile(r"--([a-z-]+)=(\S+)\s+")


@dataclass(frozen=True, slots=True)
class Step:
    word: str
    text: str
    flags: dict[str, str]

    def values(self) -> list[str]:
        """Return the step's arguments. Parse a JSON list, and split other text as a shell does."""
        return list(json.loads(self.text)) if self.text.startswith("[") else shlex.split(self.text)


@dataclass(frozen=True, slots=True)
class Stage:
    """Stage that begins with a FROM. `base` is another stage's name or an image."""

    name: str
    base: str
    steps: list[Step] = field(default_factory=list)

    def all(self, word: str) -> list[Step]:
        return [step for step in self.steps if step.word == word]


def stages(text: str) -> dict[str, Stage]:
    arguments: dict[str, str] = {}
    found: list[Stage] = []
    for step in _steps(text):
        if step.word == "ARG" and not found:
            name, _, value = step.text.partition("=")
            arguments[name] = value
        elif step.word == "FROM":
            base, _, name = _filled(step.text, arguments).partition(" AS ")
            found.append(Stage(name, base))
        else:
            found[-1].steps.append(step)
    return {stage.name: stage for stage in found}


def needed(target: str, known: dict[str, Stage]) -> list[Stage]:
    stage = known.get(target)
    if stage is None:
        return []
    sources = [stage.base, *(step.flags.get("from", "") for step in stage.all("COPY"))]
    before = [one for source in sources for one in needed(source, known)]
    return list({one.name: one for one in [*before, stage]}.values())


def _steps(text: str) -> Iterator[Step]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield Step(word, *_without_flags(rest.strip()))


def _without_flags(rest: str) -> tuple[str, dict[str, str]]:
    flags = {}
    while flag := _FLAG.match(rest):
        flags[flag[1]] = flag[2]
        rest = rest[flag.end() :]
    return rest, flags


def _filled(text: str, arguments: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda found: arguments[found[1]], text)
