"""Fixtures that render the chart with Helm, a locked package on Linux."""

import pytest

from tests.support.chart.rendering import has_helm


@pytest.fixture
def helm() -> None:
    """Skip the test if Helm is missing. Linux always has the library."""
    if not has_helm():
        pytest.skip("neither the program helm nor the package helm-python-sdk is here")
