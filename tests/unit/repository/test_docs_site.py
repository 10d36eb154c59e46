"""`make docs`: the site builds without a broken link, and its reference names everything."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

import kafka_delay
from proxy.protocol.headers import REQUESTS, STAMPS
from spark_jobs.questions import questions
from spark_jobs.results import descriptions
from spark_jobs.results.summary import AUDITS, NO_VERDICTS
from spark_jobs.verdicts.evaluation import VERDICTS
from tools.docs_site import reference, relinked, write_pages

ROOT = Path(__file__).parents[3]


@pytest.mark.rest
def test_the_site_builds_and_no_link_leads_nowhere(tmp_path: Path) -> None:
    pages, site = tmp_path / "pages", tmp_path / "site"
    write_pages(pages)
    settings = (ROOT / "mkdocs.yml").read_text("utf-8").replace("build/pages", str(pages))
    (tmp_path / "mkdocs.yml").write_text(settings.replace("build/site", str(site)), "utf-8")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "-f",
        str(tmp_path / "mkdocs.yml"),
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    for page in pages.rglob("*.md"):
        place = page.relative_to(pages).with_suffix("")
        is_index = place.name in {"index", "README"}
        folder = place.parent if is_index else place
        assert (site / folder / "index.html").is_file(), page
    assert "timer-deliver-at" in (site / "search" / "search_index.json").read_text("utf-8")


def test_the_reference_names_every_header_and_every_setting() -> None:
    pages = reference()
    rows = set(re.findall(r"^\| `(timer-[a-z-]+)`", pages["headers"], re.MULTILINE))
    assert rows == REQUESTS | STAMPS
    defaults = yaml.safe_load((ROOT / "proxy/config/default.yaml").read_text("utf-8"))
    headings = set(re.findall(r"^##+ `(.+)`$", pages["settings"], re.MULTILINE))
    assert set(_keys(defaults)) <= headings


def test_the_reference_describes_every_result_of_the_audit() -> None:
    assert descriptions.VERDICTS.keys() == VERDICTS.keys()
    assert descriptions.AUDITS.keys() == AUDITS.keys()
    assert descriptions.SUMMARY.keys() == NO_VERDICTS.to_json().keys()
    page = reference()["audit"]
    for one in questions().values():
        assert f"### `{one.name}`\n\n**{one.asks}** {one.notes}" in page
    names = set(re.findall(r"^\| `(delay_proxy_audit_[a-z_]+)`", page, re.MULTILINE))
    assert names >= {"delay_proxy_audit_violations_total", "delay_proxy_audit_unread"}


def test_the_reference_names_everything_public_in_the_client() -> None:
    page = reference()["client"]
    names = re.findall(r"^## `(.+)`$", page, re.MULTILINE)
    assert names == kafka_delay.__all__
    assert "- `attempt`: The number of earlier failures" in page
    assert "### RetryConsumer.run" in page


def test_the_reference_names_every_value_of_the_chart() -> None:
    pages = reference()
    headings = {
        page: set(re.findall(r"^##+ `(.+)`$", pages[page], re.MULTILINE))
        for page in ("settings", "chart")
    }
    values = yaml.safe_load((ROOT / "helm/kafka-delay-proxy/values.yaml").read_text("utf-8"))
    config = values.pop("config")
    assert set(values) | {"config", "config.workers", "audit.follow.size"} <= headings["chart"]
    in_pods = {name.removeprefix("config.") for name in headings["chart"]}
    assert set(_keys(config)) <= headings["settings"] | in_pods
    assert "config.topics.ingress" not in headings["chart"]


def _keys(settings: Mapping[str, object], above: str = "") -> Iterator[str]:
    for key, value in settings.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from _keys(value, f"{above}{key}.")


def test_links_lead_to_pages_and_other_files_are_named_only() -> None:
    page = "[a](../../README.md) [b](metrics.md#logs) [c](../../proxy/clock.py)"
    on_site = "[a](../index.md) [b](metrics.md#logs) c"
    assert relinked(page, "docs/operations/hour.md", "operations/hour.md") == on_site
    made = relinked("[a](../proxy/config/default.yaml)", "docs/guide.md", "guide.md")
    assert made == "[a](reference/settings.md)"
    fenced = "```\n[a](../README.md)\n```"
    assert relinked(fenced, "docs/guide.md", "guide.md") == fenced
