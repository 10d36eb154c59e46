"""Headless Chromium, controlled by Selenium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from selenium import webdriver

NAMES_OF_SERVICES = "host-resolver-rules=MAP *.svc 127.0.0.1"
OPTIONS = (
    "no-sandbox",
    "headless=new",
    "disable-background-networking",
    "hide-scrollbars",
    NAMES_OF_SERVICES,
)


class ChromiumMissing(Exception):
    def __init__(self) -> None:
        super().__init__(
            "needs chromium and chromedriver: apt-get install chromium chromium-driver"
        )


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield the browser's driver. Raise ChromiumMissing if browser or driver is missing."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        raise ChromiumMissing
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for option in OPTIONS:
        options.add_argument(f"--{option}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield started
    finally:
        started.quit()


def look(browser: Any, width: int, scheme: str, height: int = 900) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def text(browser: Any, ident: str) -> str:
    shown: str = browser.execute_script(
        "return document.getElementById(arguments[0]).innerText", ident
    )
    return shown


def press(browser: Any, *keys: str) -> None:
    webdriver.ActionChains(browser).send_keys(*keys).perform()


def click(browser: Any, selector: str) -> None:
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def fill(browser: Any, form: str, fields: Mapping[str, str]) -> None:
    for ident, given in fields.items():
        browser.execute_script(
            "document.getElementById(arguments[0]).value = arguments[1]", ident, given
        )
    browser.execute_script("document.getElementById(arguments[0]).requestSubmit()", form)
