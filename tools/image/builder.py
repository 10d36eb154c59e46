"""Execution of a Dockerfile's stages in copies of a clean root file system."""

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.image.clean_root import Root
from tools.image.context import sent
from tools.image.dockerfile import Stage, Step, needed

BASE_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(slots=True)
class Image:
    root: Root
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": BASE_PATH})
    folder: str = "/"
    user: str = "0:0"
    said: dict[str, list[str]] = field(default_factory=dict)
    """ENTRYPOINT, CMD and HEALTHCHECK as written."""

    def copy(self, path: Path) -> "Image":
        return Image(
            self.root.copy(path), {**self.environment}, self.folder, self.user, {**self.said}
        )


class Builder:
    """Builder of one Dockerfile's targets. Shared stages are built once."""

    def __init__(self, repository: Path, clean: Root, folder: Path) -> None:
        self._repository, self._folder = repository, folder
        self._clean = Image(clean)
        self._built: dict[str, Image] = {}

    def build(self, target: str, known: Mapping[str, Stage]) -> Image:
        for stage in needed(target, dict(known)):
            if stage.name not in self._built:
                print(f"# {stage.name}", flush=True)
                self._built[stage.name] = self._stage(stage)
        return self._built[target]

    def _stage(self, stage: Stage) -> Image:
        path = self._folder / stage.name
        shutil.rmtree(path, ignore_errors=True)
        image = self._built.get(stage.base, self._clean).copy(path)
        for step in stage.steps:
            self._carry_out(step, image)
        return image

    def _carry_out(self, step: Step, image: Image) -> None:
        print(f"  {step.word} {step.text[:100]}", flush=True)
        match step.word:
            case "RUN":
                image.root.run(step.text, image.environment, image.folder)
            case "COPY":
                self._copy(step, image)
            case "ENV":
                image.environment |= dict(pair.split("=", 1) for pair in shlex.split(step.text))
            case "WORKDIR":
                image.folder = step.text
                image.root.inside(step.text).mkdir(parents=True, exist_ok=True)
            case "USER":
                image.user = step.text
            case "ENTRYPOINT" | "CMD":
                image.said[step.word] = step.values()
            case "HEALTHCHECK":
                image.said[step.word] = _command_of(step).values()
            case "EXPOSE":
                pass
            case other:
                raise ValueError(f"{__name__} cannot execute {other}. Add this instruction there.")

    def _copy(self, step: Step, image: Image) -> None:
        *sources, target = step.values()
        where = Path(image.folder, target)
        into = image.root.inside(str(where))
        for source in sources:
            if stage := step.flags.get("from"):
                _copy_tree(self._built[stage].root.inside(source), into)
            else:
                self._copy_sent(Path(source), into, target.endswith("/"))

    def _copy_sent(self, source: Path, into: Path, is_folder: bool) -> None:
        files = [path for path in sent(self._repository) if path.is_relative_to(source)]
        if not files:
            raise FileNotFoundError(f"{source} is not in the build context")
        for path in files:
            within = path.relative_to(source) if path != source else Path()
            to = into / source.name if is_folder and path == source else into / within
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self._repository / path, to)


def _copy_tree(source: Path, into: Path) -> None:
    into.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, into, symlinks=True)


def _command_of(step: Step) -> Step:
    """Return the CMD of a HEALTHCHECK, which follows the flags and perhaps blanks."""
    return Step("CMD", step.text.partition("CMD ")[2].strip(), {})
