"""librdkafka accepts the settings on the page of logins."""

import re
from pathlib import Path

import pytest

from proxy.cli.check import settings_findings
from proxy.config.sources import load_settings

PAGE = Path(__file__).parents[3] / "docs/operations/logins.md"
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
SECRET = "DELAY_PROXY_KAFKA__SASL_OAUTHBEARER_CLIENT_SECRET"


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    if "client.id: delay-proxy" in example:
        monkeypatch.setenv(SECRET, "secret")
    (tmp_path / "proxy.yaml").write_text(example, "utf-8")
    settings = load_settings(tmp_path / "proxy.yaml")
    (found,) = (one for one in settings_findings(settings) if one.subject == "kafka")
    assert found.severity.value == "ok", found


def test_there_are_four_examples() -> None:
    assert len(EXAMPLES) == 4
