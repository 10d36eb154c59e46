"""A secured broker for the tests of a module, and an installation that connects to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installation.installation import Installation
from tests.support.installation.secured_site import SecuredSite, secured_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSite]:
    with secured_site(tmp_path_factory.mktemp("secured"), open_to_all=True) as made:
        yield made


@pytest.fixture
def installation(site: SecuredSite, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(site.broker.bootstrap, tmp_path)
    yield made
    made.close()
