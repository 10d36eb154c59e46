"""Fixtures of the command tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.cli.app import main


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call_with(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call_with
