"""The rendered chart runs: two pods share the work, and one takes over from the other."""

import pytest

from tests.support.chart import two_pods
from tests.support.chart.rendering import has_helm

pytestmark = pytest.mark.integration


@pytest.mark.skipif(not has_helm(), reason="nothing here renders charts")
def test_two_pods_of_the_chart_share_the_work_and_one_takes_over_from_the_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, said = two_pods.main(), capsys.readouterr().out
    assert code == 0, said
    assert "helm test" in said
    assert "has taken over" in said
    assert "started again, is back" in said
