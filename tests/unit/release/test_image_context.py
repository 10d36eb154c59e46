"""Parsers of Dockerfile and .dockerignore for the image checks."""

from pathlib import Path

import pytest

from tools.image.context import sent
from tools.image.dockerfile import needed, stages

TWO_STAGES = """\
# a comment
ARG BASE=python:3.13.1-slim
FROM ${BASE} AS first
RUN one \\
 && two
FROM ${BASE} AS other
FROM first AS last
COPY --from=other --chown=1:1 /a /b
CMD ["run", "--config", "/x y"]
"""


def test_stages_know_their_base_and_steps_on_several_lines_are_one() -> None:
    found = stages(TWO_STAGES)
    assert {name: stage.base for name, stage in found.items()} == {
        "first": "python:3.13.1-slim",
        "other": "python:3.13.1-slim",
        "last": "first",
    }
    assert [step.text.split() for step in found["first"].steps] == [["one", "&&", "two"]]


def test_flags_and_lists_of_a_step_are_told_apart() -> None:
    copy, command = stages(TWO_STAGES)["last"].steps
    assert copy.flags == {"from": "other", "chown": "1:1"}
    assert copy.values() == ["/a", "/b"]
    assert command.values() == ["run", "--config", "/x y"]


def test_stages_are_built_after_what_they_stand_on_or_copy_from() -> None:
    assert [one.name for one in needed("last", stages(TWO_STAGES))] == ["first", "other", "last"]
    assert [one.name for one in needed("other", stages(TWO_STAGES))] == ["other"]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (
            "",
            {".dockerignore", "a.txt", "code/b.py", "code/__pycache__/b.pyc", "requirements.lock"},
        ),
        ("*", set()),
        ("*\n!code", {"code/b.py", "code/__pycache__/b.pyc"}),
        ("*\n!code\n**/__pycache__", {"code/b.py"}),
        ("# all\n*\n!requirements*.lock", {"requirements.lock"}),
        ("code\n.dockerignore\nrequirements.lock", {"a.txt"}),
    ],
)
def test_last_rule_that_fits_decides_what_is_sent(
    tmp_path: Path, rules: str, expected: set[str]
) -> None:
    for name in ("a.txt", "code/b.py", "code/__pycache__/b.pyc", "requirements.lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".dockerignore").write_text(rules)
    assert {str(path) for path in sent(tmp_path)} == expected
