"""An operator uses the admin page in Chromium, with a real proxy and real records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.chromium import ChromiumMissing, chromium, click, look, press, text
from tests.support.chromium import fill as fill_form
from tests.support.installation.admin_client import api_address, call
from tests.support.installation.installation import Installation
from tests.support.records import Headers, Outgoing, read_to_end, write
from tests.support.waiting import wait_for
from tools.soak.relay import Relays

pytestmark = pytest.mark.integration
axe = pytest.importorskip("axe_core_python.base")
WITHIN_S = 180
TOKEN = "a-token-nobody-guesses"
WIDTHS = (360, 1440, 3840)


@pytest.fixture
def browser() -> Iterator[Any]:
    try:
        with chromium() as started:
            yield started
    except ChromiumMissing as missing:
        pytest.skip(str(missing))


def violations(browser: Any) -> list[str]:
    browser.execute_script(axe.AXE_SCRIPT)
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run().then((said) => done(said.violations))"
    )
    return [f"{one['id']}: {[node['html'] for node in one['nodes']]}" for one in found]


def press_button(browser: Any, name: str) -> None:
    focused = "const at = document.activeElement; return at.ariaLabel ?? at.textContent"
    for _ in range(30):
        press(browser, "\ue004")
        if browser.execute_script(focused) == name:
            break
    press(browser, "\ue007")


def move_by_keyboard(browser: Any) -> None:
    before = text(browser, "record").splitlines()[0]
    press_button(browser, "Reschedule…")
    wait_for(lambda: "the time you choose" in text(browser, "dialog"), WITHIN_S, "the question")
    assert " min." in text(browser, "dialog-understood")
    day = datetime.now().astimezone().date() + timedelta(days=3)
    browser.execute_script(
        "const field = document.getElementById('dialog-input'); field.value = arguments[0];"
        "field.dispatchEvent(new Event('input')); field.focus()",
        f"{day}T12:30:00",
    )
    assert f"which is {day.year}" in text(browser, "dialog-understood")
    assert violations(browser) == []
    press_button(browser, "Reschedule")
    wait_for(lambda: "The record is rescheduled" in text(browser, "said"), WITHIN_S, "the answer")
    wait_for(lambda: before not in text(browser, "record")[:99], WITHIN_S, "the record where it is")
    wait_for(lambda: "Rescheduled" in text(browser, "record"), WITHIN_S, "its history")


def test_an_operator_sees_what_waits_and_pauses_it_by_keyboard(
    installation: Installation, browser: Any
) -> None:
    target = installation.target("orders")
    proxy = installation.proxy()
    proxy.start_ready()
    headers = [("timer-topic", target.encode()), ("timer-delay", b"30m")]
    installation.send(
        [Outgoing(None, b"value", [*headers, ("timer-id", b"order-%d" % n)]) for n in range(40)]
    )
    browser.get(f"http://{api_address(proxy)}/")
    wait_for(lambda: "\n40" in text(browser, "facts"), WITHIN_S, "the live count")
    wait_for(lambda: "about 40 records" in text(browser, "picture"), WITHIN_S, "the picture")
    browser.execute_script(
        "document.getElementById('find-target').value = arguments[0];"
        "document.getElementById('search').requestSubmit()",
        target,
    )
    wait_for(lambda: "40 shown" in text(browser, "found"), WITHIN_S, "the records found")
    browser.execute_script("document.querySelector('#found button').click()")
    wait_for(lambda: "To be delivered" in text(browser, "record"), WITHIN_S, "the life of one")
    assert all(word in text(browser, "record") for word in ("Written", "Pending", "due in"))
    move_by_keyboard(browser)
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            look(browser, width, scheme)
            assert violations(browser) == []
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width
    browser.execute_script("document.getElementById('main').focus()")
    press_button(browser, f"Pause {target}")
    answer_question(browser, "stop delivering")
    wait_for(lambda: call(proxy, "GET", "/pauses")[1]["paused"] == [target], WITHIN_S, "a pause")
    wait_for(lambda: "Resume" in text(browser, "targets"), WITHIN_S, "the pause on the page")
    browser.execute_script("document.querySelector('#targets button').click()")
    wait_for(lambda: "rate you name" in text(browser, "dialog"), WITHIN_S, "the question")
    browser.find_element("id", "dialog-input").send_keys("many")
    browser.execute_script("document.getElementById('dialog-yes').click()")
    assert violations(browser) == []
    browser.execute_script("document.getElementById('dialog-input').value = '500'")
    browser.execute_script("document.getElementById('dialog-yes').click()")
    resumed = {"paused": [], "release_rates": {target: 500}}
    wait_for(lambda: call(proxy, "GET", "/pauses")[1] == resumed, WITHIN_S, "the resume")
    browser.execute_script("document.querySelector('#ingest button').click()")
    wait_for(lambda: "Pause the ingest?" in text(browser, "dialog"), WITHIN_S, "the question")
    browser.execute_script("document.getElementById('dialog-yes').click()")
    wait_for(lambda: "is paused" in text(browser, "ingest"), WITHIN_S, "the ingress on the page")
    assert call(proxy, "GET", "/ingest")[1]["paused"]
    assert violations(browser) == []
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def answer_question(browser: Any, asked: str) -> None:
    wait_for(lambda: asked in text(browser, "dialog"), WITHIN_S, "the question")
    assert violations(browser) == []
    press(browser, "\ue004", "\ue007")  # past "Keep as it is"


def test_an_operator_finds_records_recalls_one_and_purges_those_of_an_hour(
    installation: Installation, browser: Any
) -> None:
    target = installation.target("orders")
    proxy = installation.proxy()
    proxy.start_ready()
    installation.send(
        Outgoing(
            None,
            b"value",
            [
                ("timer-topic", target.encode()),
                ("timer-delay", delay),
                ("timer-id", b"order-%s-%d" % (delay, n)),
            ],
        )
        for delay in (b"30m", b"5h")
        for n in range(30)
    )
    browser.get(f"http://{api_address(proxy)}/")
    wait_for(lambda: "\n60" in text(browser, "facts"), WITHIN_S, "the live count")
    fill_form(browser, "picture-of", {"picture-target": target})
    due = f"30 records for {target} are due within 1 hour; at most 30 in one bar."
    wait_for(lambda: due in text(browser, "picture"), WITHIN_S, "the picture of one target")
    click(browser, "[data-scale=day]")
    wait_for(lambda: f"60 records for {target}" in text(browser, "picture"), WITHIN_S, "its day")
    assert violations(browser) == []
    fill_form(browser, "picture-of", {"picture-target": ""})
    wait_for(lambda: "about 60 records within" in text(browser, "picture"), WITHIN_S, "all")
    fill_form(browser, "search", {"find-target": target})
    wait_for(lambda: "50 shown" in text(browser, "found"), WITHIN_S, "the first page")
    click(browser, "#found > button")
    wait_for(lambda: "60 shown" in text(browser, "found"), WITHIN_S, "all of them")
    fill_form(browser, "search", {"find-id": "order-5h-7"})
    wait_for(lambda: "1 shown" in text(browser, "found"), WITHIN_S, "the one with the id")
    origin = browser.execute_script(
        "return document.querySelector('#found td button').ariaLabel.replace('Open ', '')"
    )
    fill_form(browser, "search", {"find-id": "", "find-origin": origin})
    wait_for(lambda: "To be delivered" in text(browser, "record"), WITHIN_S, "the life of one")
    press_button(browser, "Recall…")
    answer_question(browser, f"{origin} will not be delivered")
    wait_for(lambda: "The record is recalled" in text(browser, "said"), WITHIN_S, "the answer")
    wait_for(lambda: "Cancelled" in text(browser, "record"), WITHIN_S, "its end")
    in_an_hour = (datetime.now().astimezone() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
    fill_form(browser, "search", {"find-origin": "", "find-to": in_an_hour})
    wait_for(lambda: "30 shown" in text(browser, "found"), WITHIN_S, "those of the hour")
    click(browser, "#purge")
    answer_question(browser, "30 records")
    wait_for(lambda: "Purged 30 records" in text(browser, "said"), WITHIN_S, "the purge")
    wait_for(lambda: call(proxy, "GET", "/pending")[1]["pending"] == 29, WITHIN_S, "29 pending")
    fill_form(browser, "search", {"find-to": ""})
    wait_for(lambda: "29 shown" in text(browser, "found"), WITHIN_S, "those that are left")
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def fill(browser: Any, **fields: str) -> None:
    fill_form(browser, "letters", {f"letters-{name}": fields[name] for name in fields})


def replay_on_the_page(browser: Any, button: str, asked: str, done: str) -> None:
    click(browser, button)
    answer_question(browser, asked)
    wait_for(lambda: done in text(browser, "said"), WITHIN_S, "the replay")


def test_dead_letters_are_listed_opened_and_replayed_each_once(
    installation: Installation, browser: Any
) -> None:
    target, group = installation.target("orders"), installation.name
    installation.named_target(f"retry.{group}")
    proxy = installation.proxy(targets={"deny": ["secret-*"]})
    proxy.start_ready()
    denied = [("timer-topic", b"secret-orders")]
    installation.send([Outgoing(b"k%d" % n, b"value %d" % n, denied) for n in range(3)])
    given_up = [("timer-origin", f"{installation.ingress}/0/0".encode())]
    exception = ("retry-exception", b"ValueError: no stock")
    installation.named_target(f"dlq.{group}")
    write(installation.bootstrap, f"dlq.{group}", [Outgoing(b"g", b"", [*given_up, exception])])
    browser.get(f"http://{api_address(proxy)}/")
    wait_for(lambda: "target-refused" in text(browser, "dead"), WITHIN_S, "the reason")
    click(browser, "#dead button")
    wait_for(lambda: "3 shown" in text(browser, "letters-found"), WITHIN_S, "the letters")
    click(browser, "#letters-found button")
    wait_for(lambda: "What to do" in text(browser, "letter"), WITHIN_S, "one letter")
    click(browser, "#letter summary")
    assert "value 2" in text(browser, "letter")
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            look(browser, width, scheme)
            assert violations(browser) == []
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width
    click(browser, "#replay")
    wait_for(lambda: "No letter can be replayed" in text(browser, "said"), WITHIN_S, "the refusal")
    fill(browser, set=f"timer-topic={target}")
    replay_on_the_page(browser, "#letter button", f"1 to {target}", "Replayed 1 letter")
    replay_on_the_page(browser, "#replay", f"2 to {target}", "2 letters. Already replayed: 1")
    fill(browser, set="", reason="ValueError*", topic=f"dlq.{group}")
    wait_for(lambda: "ValueError: no stock" in text(browser, "letters-found"), WITHIN_S, "its own")
    replay_on_the_page(browser, "#replay", f"1 to retry.{group}", "Replayed 1 letter")
    assert {one.key for one in read_to_end(installation.bootstrap, target, 3)} == {
        b"k0",
        b"k1",
        b"k2",
    }
    assert len(read_to_end(installation.bootstrap, f"retry.{group}", 1)) == 1
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def test_off_loopback_the_page_says_what_to_set_and_opens_with_a_token(
    installation: Installation, browser: Any
) -> None:
    closed = installation.proxy(admin={"host": "0.0.0.0", "port": 0})  # noqa: S104
    closed.start_ready()
    browser.get(f"http://{api_address(closed)}/")
    wait_for(lambda: "Set `admin: token`" in text(browser, "access"), WITHIN_S, "what to set")
    assert violations(browser) == []
    assert closed.stop() == 0
    opened = installation.proxy("opened", admin={"host": "0.0.0.0", "port": 0, "token": TOKEN})  # noqa: S104
    opened.start_ready()
    browser.get(f"http://{api_address(opened)}/")
    wait_for(
        lambda: "needs a token of the proxy" in text(browser, "access"), WITHIN_S, "the question"
    )
    browser.find_element("id", "token").send_keys(f"{TOKEN}\ue007")
    wait_for(lambda: "Live" in text(browser, "connection"), WITHIN_S, "the page")


@pytest.mark.parametrize("name", ["localhost", "delay-proxy-admin.delays.svc"])
def test_the_page_works_through_a_forwarded_port_and_behind_a_service(
    installation: Installation, browser: Any, name: str
) -> None:
    target = installation.target("orders")
    proxy = installation.proxy(admin={"host": "0.0.0.0", "port": 0, "token": TOKEN})  # noqa: S104
    proxy.start_ready()
    installation.send([Outgoing(None, b"value", delayed(target)) for _ in range(3)])
    admin_port = int(api_address(proxy).rpartition(":")[2])
    with Relays({0: admin_port}) as relays:
        browser.get(f"http://{name}:{relays.port(0)}/")
        wait_for(
            lambda: "needs a token of the proxy" in text(browser, "access"), WITHIN_S, "question"
        )
        browser.find_element("id", "token").send_keys(f"{TOKEN}\ue007")
        wait_for(lambda: "\n3" in text(browser, "facts"), WITHIN_S, "the live count")
        installation.send([Outgoing(None, b"value", delayed(target))])
        wait_for(lambda: "\n4" in text(browser, "facts"), WITHIN_S, "what has come meanwhile")
        wait_for(lambda: target in text(browser, "targets"), WITHIN_S, "the target")
        browser.execute_script("document.querySelector('#targets button').click()")
        wait_for(lambda: "stop delivering" in text(browser, "dialog"), WITHIN_S, "the question")
        browser.execute_script("document.getElementById('dialog-yes').click()")
        wait_for(lambda: "Resume" in text(browser, "targets"), WITHIN_S, "the pause on the page")
        assert "Live" in text(browser, "connection")


def delayed(target: str) -> Headers:
    return [("timer-topic", target.encode()), ("timer-delay", b"30m")]
