"""Users behind a proxy that authenticates: its header counts with its token, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.admin.problem import Problem
from proxy.admin.tokens import Tokens, best_token
from proxy.config.settings import AdminSettings, AdminToken, Role
from tests.support.simulation.admin_api import MadeUpApi
from tests.support.simulation.admin_exchange import exchange

SSO, PLAIN = "a-token-of-the-login-page", "a-token-of-the-operator"
HEADER = "X-Forwarded-User"
ALICE = "alice@example.org"
USERS: dict[str, Role] = {ALICE: "operator", "root": "admin", "mallory": "metrics"}


@pytest.fixture
def settings(tmp_path: Path) -> AdminSettings:
    (tmp_path / "sso").write_text(SSO)
    (tmp_path / "plain").write_text(PLAIN)
    tokens = {
        "sso": AdminToken(role="viewer", file=tmp_path / "sso", trusted=True),
        "plain": AdminToken(role="operator", file=tmp_path / "plain"),
    }
    return AdminSettings(tokens=tokens, trusted_header=HEADER, users=USERS)


@pytest.fixture
def made(settings: AdminSettings) -> MadeUpApi:
    return MadeUpApi(settings)


def me(made: MadeUpApi, token: str, **headers: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return made.ask("/me", headers={"authorization": f"Bearer {token}", **named})


@pytest.mark.parametrize(
    ("user", "role", "contents"),
    [
        (ALICE, "operator", True),
        ("bob", "viewer", False),
        ("mallory", "metrics", False),
        ("root", "admin", True),
        ("Root", "viewer", False),
    ],
)
def test_a_user_has_the_role_of_its_name_or_of_the_token(
    made: MadeUpApi, user: str, role: str, contents: bool
) -> None:
    said = {"name": f"{user} via sso", "role": role, "contents": contents}
    assert me(made, SSO, X_Forwarded_User=user) == (200, said)


def test_the_header_counts_for_no_other_caller(made: MadeUpApi) -> None:
    code, said = me(made, PLAIN, X_Forwarded_User="root")
    assert (code, said["name"], said["role"]) == (200, "plain", "operator")
    assert me(made, "no-such-token-at-all", X_Forwarded_User="root")[0] == 401
    assert made.ask("/me", headers={"x-forwarded-user": "root"})[0] == 401
    local = MadeUpApi().ask("/me", headers={"x-forwarded-user": "somebody"})
    assert local[1]["name"] == "local"


@pytest.mark.parametrize("name", ["", "   ", "a\tb", "a\u0085b", "x" * 201])
def test_without_a_name_that_can_be_shown_the_token_of_the_proxy_opens_nothing(
    made: MadeUpApi, name: str
) -> None:
    assert me(made, SSO, X_Forwarded_User=name)[1]["error"] == "user-needed"
    assert me(made, SSO)[1]["error"] == "user-needed"
    assert made.reply("/metrics", headers={"authorization": f"Bearer {SSO}"})[0] == 403


def test_a_name_that_is_not_utf_8_is_refused(settings: AdminSettings) -> None:
    tokens = Tokens(settings)
    proxy = tokens.caller(f"Bearer {SSO}")
    assert proxy is not None
    with pytest.raises(Problem, match="X-Forwarded-User"):
        tokens.user_of(proxy, [(HEADER.lower(), "\xff\xfe")], "none")


def test_two_names_are_refused(made: MadeUpApi) -> None:
    class Twice(dict[str, str]):
        """Headers as a caller sends them who adds a name of its own."""

        def items(self) -> Any:
            return [*super().items(), (HEADER, "root"), (HEADER, "bob")]

    shown = Twice({"host": "a", "authorization": f"Bearer {SSO}"})
    code, _, text = exchange(made.app, "GET", "/api/v1/me", shown)
    assert (code, json.loads(text)["error"]) == (403, "user-needed")


@pytest.mark.parametrize(
    ("site", "code"), [("same-origin", 200), ("none", 200), ("cross-site", 403)]
)
def test_a_page_of_another_site_cannot_use_a_users_login(
    made: MadeUpApi, site: str, code: int
) -> None:
    assert me(made, SSO, X_Forwarded_User="root", Sec_Fetch_Site=site)[0] == code


def test_a_change_is_recorded_with_the_users_name(made: MadeUpApi) -> None:
    shown = {"authorization": f"Bearer {SSO}", HEADER.lower(): ALICE}
    assert made.ask("/pauses/orders", "PUT", headers=shown)[0] == 200
    assert made.ask("/purges", "POST", {"targets": "*", "dry_run": False}, shown)[0] == 403
    callers = [json.loads(value)["caller"] for value in made.broker.changes]
    assert callers == [f"{ALICE} via sso"] * 2


def test_commands_do_not_use_the_token_of_the_proxy(settings: AdminSettings) -> None:
    assert best_token(settings) == PLAIN
    settings.tokens["plain"].file.unlink()
    assert best_token(settings) is None


@pytest.mark.parametrize(
    "changed", [{"trusted_header": None}, {"tokens": {}}, {"tokens": {}, "trusted_header": None}]
)
def test_header_token_and_users_need_each_other(
    settings: AdminSettings, changed: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="trusted_header"):
        AdminSettings.model_validate({**dict(settings), **changed})


@pytest.mark.parametrize("header", ["", "X Forwarded", "X_User", "X-User\r\nA", "ä"])
def test_a_header_that_cannot_be_sent_is_refused(settings: AdminSettings, header: str) -> None:
    with pytest.raises(ValueError, match="trusted_header"):
        AdminSettings.model_validate({**dict(settings), "trusted_header": header})
