"""Functions that take the pictures. Each picture shows a part of the page, in one size, light or
dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.support.chromium import click, fill, look, text
from tests.support.waiting import wait_for
from tools.pictures.records import GIVEN_UP, far_id

WITHIN_S: Final = 180
WIDE, NARROW, WALL = (1440, 1000), (360, 780), (3840, 2160)


def take_all(browser: Any, address: str, origin: str, folder: Path) -> None:
    """Take the pictures of the page at each width. `origin` names the record with the history."""
    _open(browser, address)
    click(browser, "[data-scale=day]")
    _take(browser, folder / "admin-page-light.png", WIDE, "light", "header")
    _show_life(browser, origin)
    _take(browser, folder / "admin-page-dark.png", WIDE, "dark", "#record")
    _ask_for_another_time(browser)
    _take(browser, folder / "admin-page-reschedule.png", WIDE, "light", "#record")
    browser.execute_script("document.getElementById('dialog').close()")
    _show_letters(browser)
    _take(browser, folder / "admin-page-letters.png", WIDE, "light", "#letters-topic")
    _take(browser, folder / "admin-page-narrow.png", NARROW, "dark", "header")
    _show_life(browser, origin)
    _take(browser, folder / "admin-page-narrow-life.png", NARROW, "light", "#record")
    _take(browser, folder / "admin-page-wall.png", WALL, "light", "header")


def take_many(browser: Any, address: str, folder: Path) -> None:
    _open(browser, address)
    click(browser, "[data-scale=month]")
    fill(browser, "search", {"find-target": "invoices"})
    wait_for(lambda: "50 shown" in text(browser, "found"), WITHIN_S, "the records found")
    _take(browser, folder / "admin-page-many.png", WIDE, "light", "header")


def _open(browser: Any, address: str) -> None:
    browser.get(address)
    wait_for(lambda: "about" in text(browser, "picture"), WITHIN_S, "the picture")


def _show_life(browser: Any, origin: str) -> None:
    fill(browser, "search", {"find-origin": origin})
    said = f"{origin}\n"
    wait_for(lambda: text(browser, "record").startswith(said), WITHIN_S, "the record")
    wait_for(lambda: "Steps:" in text(browser, "record"), WITHIN_S, "its life")


def _ask_for_another_time(browser: Any) -> None:
    fill(browser, "search", {"find-origin": "", "find-id": far_id()})
    wait_for(lambda: "1 shown" in text(browser, "found"), WITHIN_S, "the record")
    click(browser, "#found button")
    wait_for(lambda: "To be delivered" in text(browser, "record"), WITHIN_S, "its life")
    click(browser, "#record-actions button")
    wait_for(lambda: "Deliver at" in text(browser, "dialog"), WITHIN_S, "the question")


def _show_letters(browser: Any) -> None:
    fill(browser, "letters", {"letters-topic": GIVEN_UP})
    wait_for(lambda: "9 shown" in text(browser, "letters-found"), WITHIN_S, "the dead letters")


def _take(browser: Any, path: Path, size: tuple[int, int], scheme: str, at: str) -> None:
    look(browser, size[0], scheme, size[1])
    browser.execute_script(
        "document.documentElement.style.scrollBehavior = 'auto';"
        "const at = document.querySelector(arguments[0]).getBoundingClientRect().top;"
        "window.scrollBy(0, at - 24)",
        at,
    )
    browser.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    )
    path.write_bytes(browser.get_screenshot_as_png())
