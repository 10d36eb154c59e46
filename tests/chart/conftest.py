"""Charts are rendered by Helm, which is a package of the lock file on Linux."""

import pytest

from tests.support.chart.rendering import has_helm


@pytest.fixture
def helm() -> None:
    """Skips where nothing can render; on Linux there is always the library."""
    if not has_helm():
        pytest.skip("neither the program helm nor the package helm-python-sdk is here")
