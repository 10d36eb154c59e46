"""Build context: the files that `.dockerignore` does not exclude."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath


def sent(folder: Path) -> Iterator[Path]:
    """Yield the files, relative to the folder. An excluded folder at the top is not read. So a rule
    with `!` cannot include its files again."""
    lines = (folder / ".dockerignore").read_text("utf-8").splitlines()
    rules = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    for top in sorted(folder.iterdir()):
        if top.name != ".git" and not _is_kept_back(PurePosixPath(top.name), rules):
            files = sorted(top.rglob("*")) if top.is_dir() else [top]
            within = [path.relative_to(folder) for path in files if path.is_file()]
            yield from (path for path in within if not _is_kept_back(path, rules))


def _is_kept_back(path: Path | PurePosixPath, rules: tuple[str, ...]) -> bool:
    kept_back = False
    for rule in rules:
        pattern = _pattern(rule.removeprefix("!"))
        if any(pattern.fullmatch(str(one)) for one in (path, *path.parents)):
            kept_back = not rule.startswith("!")
    return kept_back


@cache
def _pattern(rule: str) -> re.Pattern[str]:
    parts = [re.escape(part).replace(r"\*", "[^/]*") for part in rule.strip("/").split("**/")]
    return re.compile("(.*/)?".join(parts))
