"""`audit` passes its options on, and refuses contradictory ones."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy.cli.app import app
from proxy.cli.audit import arguments


def test_options_reach_the_program_as_a_command_line_has_them() -> None:
    given = {"output": Path("here"), "target": ["a", "b*"], "at": None, "json": True, "every": 5}
    assert arguments({**given, "follow": False, "since": None}) == [
        "--output=here",
        "--target=a",
        "--target=b*",
        "--json",
        "--every=5",
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--follow", "--since", "1"], "--since does not go with --follow"),
        (["--follow", "--json"], "--json does not go with --follow"),
        (["--follow", "--continue"], "--continue does not go with --follow"),
        (["--follow", "--continue-from", "x"], "--continue-from does not go with --follow"),
        (["--every", "5"], "--every needs --follow"),
        (["--max-offsets", "5"], "--max-offsets needs --follow"),
        (["--follow", "--max-offsets", "0"], "Invalid value for '--max-offsets'"),
        (["--metrics-port", "0"], "--metrics-port needs --follow"),
        (["--metrics-host", "localhost"], "--metrics-host needs --follow"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(given: list[str], says: str) -> None:
    said = CliRunner().invoke(app, ["audit", *given])
    assert said.exit_code == 2
    assert says in said.output
