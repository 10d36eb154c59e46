"""The page names its process, shows times in a chosen zone, exports lists, and moves them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proxy.admin.server import AdminServer
from proxy.config.settings import AdminSettings, AdminToken
from tests.support.chromium import ChromiumMissing, chromium, click, fill, text
from tests.support.installation.admin_client import api_address, call
from tests.support.installation.installation import Installation
from tests.support.records import Outgoing
from tests.support.simulation.admin_api import MadeUpApi
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration
WITHIN_S = 180
DOCS = "https://docs.example.com/proxy"
TOKEN = "a-token-of-the-viewer"
FORMULAS = (b"=1+1", b"+1", b"-2", b"@SUM(A1)", b"\t=1", b'say "no", then;=2', b"plain")
CHOOSE = (
    "const list = document.getElementById('zone'); list.value = arguments[0];"
    "list.dispatchEvent(new Event('change'))"
)
TYPED = (
    "const [typed, done] = arguments;"
    "import('/page/time.js').then((time) => done(time.typedTime(typed)))"
)
NO_STORAGE = (
    "for (const kind of ['localStorage', 'sessionStorage']) Object.defineProperty(window, kind, "
    "{ get() { throw new DOMException('closed', 'SecurityError'); } })"
)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    try:
        with chromium() as started:
            folder = {"behavior": "allow", "downloadPath": str(tmp_path)}
            started.execute_cdp_cmd("Browser.setDownloadBehavior", folder)
            yield started
    except ChromiumMissing as missing:
        pytest.skip(str(missing))


def exported(browser: Any, folder: Path, button: str, ending: str) -> Path:
    click(browser, f"[aria-label='{button}']")
    wait_for(lambda: "Exported" in text(browser, "said"), WITHIN_S, "the end of the export")
    # Chromium makes an empty file of this name before it moves the whole one there.
    wait_for(lambda: any(one.stat().st_size for one in folder.glob(f"*.{ending}")), WITHIN_S, "it")
    return next(folder.glob(f"*.{ending}"))


def open_page(browser: Any, address: str) -> None:
    browser.get(f"http://{address}/")
    wait_for(lambda: "Live" in text(browser, "connection"), WITHIN_S, "the page")


def test_the_page_names_its_process_and_exports_all_that_a_filter_chooses(
    installation: Installation, browser: Any, tmp_path: Path
) -> None:
    target = installation.target("orders")
    admin = {"port": 0, "environment": "production", "colour": "#00ff00", "docs_url": DOCS}
    proxy = installation.proxy(admin=admin)
    proxy.start_ready()
    headers = [("timer-topic", target.encode()), ("timer-delay", b"30m")]
    idents = [*FORMULAS, *(b"order-%d" % n for n in range(60))]
    installation.send([Outgoing(None, b"value", [*headers, ("timer-id", one)]) for one in idents])
    other = [("timer-topic", installation.target("bills").encode()), ("timer-delay", b"30m")]
    installation.send([Outgoing(None, b"value", other)])
    open_page(browser, api_address(proxy))
    named = text(browser, "identity")
    assert "production" in browser.title
    assert all(part in browser.title for part in named.split(" · ")[:3])
    assert "unknown" not in named
    assert text(browser, "environment") == "production"
    colours = "const s = getComputedStyle(document.getElementById('environment'));"
    assert browser.execute_script(f"{colours} return [s.backgroundColor, s.color]") == [
        "rgb(0, 255, 0)",
        "rgb(0, 0, 0)",
    ]
    links = "return [...document.querySelectorAll('#links a')].map((one) => one.href)"
    assert browser.execute_script(links)[1:] == [f"{DOCS}/operations/runbook/", DOCS]
    wait_for(lambda: f"\n{len(idents) + 1}" in text(browser, "facts"), WITHIN_S, "all records")
    fill(browser, "search", {"find-target": target})
    wait_for(lambda: "50 shown" in text(browser, "found"), WITHIN_S, "the first page")
    file = exported(browser, tmp_path, "Export pending records as CSV", "csv")
    rows = [*csv.DictReader(file.open(encoding="utf-8", newline=""))]
    assert "production" in file.name
    assert {row["target"] for row in rows} == {target}
    assert not any(row["id"].startswith(("=", "+", "-", "@", "\t")) for row in rows)
    assert sorted(row["id"].replace("'", "") for row in rows) == sorted(map(bytes.decode, idents))
    said = json.loads(
        exported(browser, tmp_path, "Export pending records as JSON", "json").read_text("utf-8")
    )
    assert {one["id"] for one in said["rows"]} == {one.decode() for one in idents}
    assert (said["group"], said["cut"], said["filters"]) == (
        f"{installation.name}.proxy",
        False,
        {"target": target},
    )
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def test_a_long_list_is_cut_and_the_page_says_so(browser: Any, tmp_path: Path) -> None:
    with closing(AdminServer(MadeUpApi(AdminSettings(port=0)).site)) as server:
        open_page(browser, f"127.0.0.1:{server.port}")
        endless = (
            "const done = arguments[0]; import('/page/export.js').then((made) => {"
            "document.getElementById('found').append(made.exports('endless', {}, [['n', (n) => n]],"
            " async (from) => [Array(900).fill(1), String(from).length < 90 ? `${from}1` : null]));"
            "done() })"
        )
        browser.execute_async_script(endless)
        file = exported(browser, tmp_path, "Export endless as CSV", "csv")
        assert file.name.endswith("-cut.csv")
        assert len(file.read_text("utf-8").splitlines()) == 10_001
        assert "cut" in text(browser, "said")


def test_an_export_has_no_contents_for_a_role_that_may_not_read_them(
    browser: Any, tmp_path: Path
) -> None:
    (tmp_path / "viewer").write_text(TOKEN)
    tokens = {"viewer": AdminToken(role="viewer", file=tmp_path / "viewer")}
    with closing(AdminServer(MadeUpApi(AdminSettings(port=0, tokens=tokens)).site)) as server:
        browser.get(f"http://127.0.0.1:{server.port}/")
        wait_for(lambda: "needs a token" in text(browser, "access"), WITHIN_S, "the question")
        fill(browser, "token-form", {"token": TOKEN})
        wait_for(lambda: "timer.dead" in text(browser, "letters-topic"), WITHIN_S, "the topics")
        fill(browser, "letters", {})
        wait_for(lambda: "shown" in text(browser, "letters-found"), WITHIN_S, "the letters")
        file = exported(browser, tmp_path, "Export dead letters as JSON", "json")
        rows = json.loads(file.read_text("utf-8"))["rows"]
        assert rows
        assert {one["key"] for one in rows} == {None}


@pytest.mark.parametrize("is_kept", [True, False])
def test_times_are_shown_and_read_in_the_chosen_zone(browser: Any, is_kept: bool) -> None:
    if not is_kept:
        script = {"source": NO_STORAGE}
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", script)
    with closing(AdminServer(MadeUpApi(AdminSettings(port=0)).site)) as server:
        open_page(browser, f"127.0.0.1:{server.port}")
        fill(browser, "search", {"find-target": "orders"})
        wait_for(lambda: "1970" in text(browser, "found"), WITHIN_S, "the records")
        browser.execute_script(CHOOSE, "America/St_Johns")
        assert "1969" in text(browser, "found")
        assert browser.execute_async_script(TYPED, "1970-01-01T00:00") == 3.5 * 3_600_000
        browser.execute_script(CHOOSE, "Europe/Berlin")
        skipped, twice = "2026-03-29T02:30", "2026-10-25T02:30"
        assert browser.execute_async_script(TYPED, skipped) == 1_774_747_800_000
        assert browser.execute_async_script(TYPED, twice) == 1_792_888_200_000
        open_page(browser, f"127.0.0.1:{server.port}")
        zone = browser.execute_script("return document.getElementById('zone').value")
        assert (zone == "Europe/Berlin") == is_kept


def test_a_kept_zone_that_the_browser_does_not_know_is_ignored(browser: Any) -> None:
    with closing(AdminServer(MadeUpApi(AdminSettings(port=0)).site)) as server:
        open_page(browser, f"127.0.0.1:{server.port}")
        browser.execute_script("localStorage.setItem('time-zone', '<img src=x>')")
        open_page(browser, f"127.0.0.1:{server.port}")
        assert "<" not in browser.execute_script("return document.getElementById('zone').value")


def test_records_of_a_filter_are_rescheduled_and_then_delivered_now(
    installation: Installation, browser: Any
) -> None:
    target, proxy = installation.target("orders"), installation.proxy()
    proxy.start_ready()
    headers = [("timer-topic", target.encode()), ("timer-delay", b"30m")]
    installation.send([Outgoing(None, b"value", headers) for _ in range(25)])
    installation.await_ingested()
    open_page(browser, api_address(proxy))
    click(browser, "#move")
    assert "Enter the target" in text(browser, "said")
    fill(browser, "search", {"find-target": target})
    click(browser, "#move")
    wait_for(lambda: "get one time" in text(browser, "dialog"), WITHIN_S, "the question")
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=3)
    typed = f"{noon:%Y-%m-%dT%H:%M:%S}"
    browser.execute_script(CHOOSE, "UTC")
    browser.execute_script("document.getElementById('dialog-input').value = arguments[0]", typed)
    click(browser, "#dialog-yes")
    wait_for(lambda: "Reschedule 25 records" in text(browser, "dialog"), WITHIN_S, "the count")
    click(browser, "#dialog-yes")
    wait_for(lambda: "25 records moved." in text(browser, "said"), WITHIN_S, "the move")
    listed = call(proxy, "GET", f"/pending/records?target={target}")[1]["records"]
    assert {one["due"] for one in listed} == {noon.timestamp() * 1000}
    click(browser, "#fire")
    wait_for(lambda: "Deliver 25 records" in text(browser, "dialog"), WITHIN_S, "the count")
    click(browser, "#dialog-yes")
    wait_for(lambda: call(proxy, "GET", "/pending")[1]["pending"] == 0, WITHIN_S, "all delivered")
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []
