"""The page says who is logged in, and hides what the role cannot do."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from proxy.admin.server import AdminServer
from proxy.admin.tokens import ROLES
from proxy.config.settings import AdminSettings, AdminToken, Role
from tests.support.chromium import ChromiumMissing, chromium, text
from tests.support.simulation.admin_api import MadeUpApi
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration
WITHIN_S = 180
BUTTONS: dict[Role, set[str]] = {
    "viewer": set(),
    "operator": {"pause-pattern", "replay", "changes-show", "move", "fire"},
    "admin": {"pause-pattern", "replay", "changes-show", "move", "fire", "purge"},
}
SHOWN = (
    "return arguments[0].filter((id) => document.getElementById(id).getClientRects().length > 0)"
)
LOG_IN = (
    "document.getElementById('token').value = arguments[0];"
    "document.getElementById('token-form').requestSubmit()"
)


def test_the_page_names_the_caller_and_hides_what_its_role_cannot_do(tmp_path: Path) -> None:
    tokens = {}
    for role in ROLES:
        (tmp_path / role).write_text(f"the-secret-token-of-{role}")
        tokens[f"team-{role}"] = AdminToken(role=role, file=tmp_path / role)
    made = MadeUpApi(AdminSettings(port=0, tokens=tokens))
    try:
        with closing(AdminServer(made.site)) as server, chromium() as browser:
            for role, buttons in BUTTONS.items():
                log_in(browser, server.port, role)
                shown = browser.execute_script(SHOWN, sorted(BUTTONS["admin"]))
                assert set(shown) == buttons, role
                pauses = browser.find_elements("css selector", "#targets button")
                assert any(one.is_displayed() for one in pauses) == (role != "viewer")
    except ChromiumMissing as missing:
        pytest.skip(str(missing))


def log_in(browser: Any, port: int, role: Role) -> None:
    browser.get(f"http://127.0.0.1:{port}/")
    browser.execute_script("sessionStorage.clear()")
    browser.refresh()
    wait_for(lambda: "needs a token" in text(browser, "access"), WITHIN_S, "the question")
    browser.execute_script(LOG_IN, f"the-secret-token-of-{role}")
    wait_for(lambda: text(browser, "caller") == f"team-{role}: {role}", WITHIN_S, "the caller")
    wait_for(lambda: "orders" in text(browser, "targets"), WITHIN_S, "the targets")
