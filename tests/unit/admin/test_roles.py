"""Roles at the admin port: every call has one least role, and lower roles are refused."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from proxy.admin import server as server_module
from proxy.admin.app import CALLS, api
from proxy.admin.calls import CallRoute
from proxy.admin.peers import PREFIX
from proxy.admin.server import AdminServer
from proxy.admin.tokens import ROLES, Tokens, best_token, needs
from proxy.config.settings import AdminSettings, AdminToken, Role
from proxy.errors import SettingsError
from tests.support.simulation.admin_api import MadeUpApi
from tests.support.waiting import wait_for

LIMIT_S = 60.0
LEAST: dict[Role, set[str]] = {
    "metrics": {"GET /me"},
    "viewer": {
        "GET /dead-letters",
        "GET /dead-letters/replays/{id}",
        "GET /dead-letters/topics",
        "GET /dead-letters/{topic}/{partition}/{offset}",
        "GET /events",
        "GET /half-messages",
        "GET /ingest",
        "GET /instance",
        "GET /instances",
        "GET /limits",
        "GET /log-level",
        "GET /openapi.json",
        "GET /pauses",
        "GET /pending",
        "GET /pending/by-time",
        "GET /pending/records",
        "GET /records",
        "GET /records/{topic}/{partition}/{offset}",
        "GET /records/{topic}/{partition}/{offset}/trace",
    },
    "operator": {
        "GET /changes",
        "DELETE /dead-letters/replays/{id}",
        "DELETE /ingest/paused",
        "DELETE /limits",
        "DELETE /limits/{pattern}",
        "DELETE /pauses/{pattern}",
        "DELETE /records/{topic}/{partition}/{offset}",
        "PATCH /records/{topic}/{partition}/{offset}",
        "POST /cancellations",
        "POST /dead-letters/replays",
        "POST /moves",
        "PUT /ingest/paused",
        "PUT /limits",
        "PUT /limits/{pattern}",
        "PUT /pauses/{pattern}",
    },
    "admin": {"POST /purges", "POST /skips", "PUT /log-level"},
}
"""The calls of each role. Write a new call here, below its least role."""


def routes() -> dict[str, CallRoute]:
    return {f"{method} {one.path}": one for one in CALLS for method in one.methods or ()}


def token_of(name: str) -> str:
    return f"the-secret-token-of-{name}"


@pytest.fixture
def made(tmp_path: Path) -> MadeUpApi:
    return MadeUpApi(settings_in(tmp_path))


def settings_in(folder: Path) -> AdminSettings:
    entries: dict[str, AdminToken] = {}
    for role in ROLES:
        (folder / role).write_text(f"{token_of(role)}\n")
        entries[role] = AdminToken(role=role, file=folder / role)
    (folder / "auditor").write_text(token_of("auditor"))
    entries["auditor"] = AdminToken(role="viewer", file=folder / "auditor", contents=True)
    return AdminSettings(port=0, tokens=entries)


def ask(made: MadeUpApi, token: str | None, call: str, body: object = None) -> tuple[int, Any]:
    method, _, path = call.partition(" ")
    shown = {} if token is None else {"authorization": f"Bearer {token_of(token)}"}
    return made.ask(path, method, body, shown)


def test_every_call_of_the_application_has_the_least_role_written_here() -> None:
    assert {name: one.least_role for name, one in routes().items()} == {
        name: role for role, names in LEAST.items() for name in names
    }
    assert all(one in CALLS for one in api.router.routes)


def test_a_call_without_a_role_cannot_be_made() -> None:
    def call() -> None:
        """Answer."""

    with pytest.raises(KeyError, match="least_role"):
        CallRoute("/new", call)
    assert CallRoute("/new", needs("viewer")(call)).least_role == "viewer"


@pytest.mark.parametrize("name", sorted(routes()))
def test_a_call_refuses_lower_roles_and_nobody_else(made: MadeUpApi, name: str) -> None:
    route = routes()[name]
    method = name.split(maxsplit=1)[0]
    path = re.sub(r"\{pattern\}", "orders", route.path)
    path = re.sub(r"\{id\}", "0f1e2d3c4b5a", path)
    path = path.replace("{topic}/{partition}/{offset}", "timer.ingress/0/5")
    if name == "GET /events":  # the stream has no end
        method = "HEAD"
    least = ROLES.index(route.least_role)
    code, said = ask(made, None, f"{method} {path}") if method != "HEAD" else (401, None)
    assert code == 401
    for rank, role in enumerate(ROLES):
        shown = {"authorization": f"Bearer {token_of(role)}"}
        code, _, text = made.reply(f"{PREFIX}{path}", method, None, shown)
        if rank < least:
            assert (code, b"role-needed" in text or method == "HEAD") == (403, True), role
            assert route.least_role.encode() in text or method == "HEAD"
        else:
            assert code not in {401, 405}, role
            assert not text.startswith(b'{"error":"role-needed"')
    assert said is None or said["error"] == "token-needed"


def test_a_refused_call_changes_nothing(made: MadeUpApi) -> None:
    assert ask(made, "viewer", "PUT /pauses/orders")[0] == 403
    assert made.broker.paused == set()
    assert ask(made, "operator", "PUT /pauses/orders")[0] == 200
    assert made.broker.paused == {"orders"}
    body = {"targets": "orders", "dry_run": False}
    assert ask(made, "operator", "POST /purges", body)[1]["error"] == "role-needed"
    assert made.broker.purges == []


def test_metrics_need_the_lowest_role_and_probes_none(made: MadeUpApi) -> None:
    def code(path: str, token: str | None) -> int:
        shown = {} if token is None else {"authorization": f"Bearer {token_of(token)}"}
        return made.reply(path, headers=shown)[0]

    assert [code("/metrics", one) for one in (None, *ROLES)] == [401, 200, 200, 200, 200]
    assert code("/healthz", None) in {200, 503}


def test_a_caller_is_told_its_name_and_role(made: MadeUpApi) -> None:
    assert ask(made, "auditor", "GET /me") == (
        200,
        {"name": "auditor", "role": "viewer", "contents": True},
    )
    assert ask(made, "viewer", "GET /me")[1]["contents"] is False
    assert ask(made, "operator", "GET /me")[1]["contents"] is True
    assert MadeUpApi().ask("/me")[1] == {"name": "local", "role": "admin", "contents": True}


def test_a_process_is_told_by_cluster_group_and_name() -> None:
    settings = AdminSettings(environment="production", docs_url="https://docs.example.com/")
    made = MadeUpApi(settings)
    code, said = made.ask("/instance")
    assert (code, said["cluster"], said["group"]) == (200, "a-cluster", "delay-proxy")
    assert said["runbook_url"] == "https://docs.example.com/operations/runbook/"
    own = settings.model_copy(update={"runbook_url": "https://own.example.com/"})
    assert MadeUpApi(own).ask("/instance")[1]["runbook_url"] == "https://own.example.com/"


def test_one_token_in_the_settings_has_the_role_admin() -> None:
    made = MadeUpApi(AdminSettings(token=token_of("me")))
    assert ask(made, "me", "GET /me")[1]["role"] == "admin"


def test_a_viewer_reads_no_contents_unless_its_entry_says_so(made: MadeUpApi) -> None:
    letter = "GET /dead-letters/timer.dead-letters/0/0"
    for call in ("GET /records/timer.ingress/0/5?body=true", letter):
        code, said = ask(made, "viewer", call)
        assert (code, said["error"]) == (403, "contents-needed")
        assert ask(made, "auditor", call)[1].get("error") != "contents-needed"
    assert ask(made, "viewer", "GET /records/timer.ingress/0/5")[0] == 200


def test_lists_and_traces_of_a_viewer_quote_no_record(made: MadeUpApi) -> None:
    for topic in ("timer.dead-letters", "dlq.billing"):
        _, said = ask(made, "viewer", f"GET /dead-letters?topic={topic}")
        assert {one["key"] for one in said["letters"]} <= {None}
    _, said = ask(made, "viewer", "GET /dead-letters?topic=dlq.billing")
    assert {one["detail"] for one in said["letters"]} == {None}
    _, said = ask(made, "auditor", "GET /dead-letters?topic=dlq.billing")
    assert None not in {one["detail"] for one in said["letters"]}
    _, said = ask(made, "auditor", "GET /dead-letters")
    assert any(one["key"] for one in said["letters"])
    probing = "GET /dead-letters?topic=dlq.billing&reason=*secret*"
    assert ask(made, "viewer", probing)[1]["error"] == "contents-needed"
    trace = "GET /records/timer.ingress/0/5/trace"
    assert {one["detail"] for one in ask(made, "viewer", trace)[1]["steps"]} == {""}
    assert {one["detail"] for one in ask(made, "auditor", trace)[1]["steps"]} != {""}


def test_a_changed_file_counts_and_a_missing_one_admits_nobody(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    tokens = Tokens(settings)
    old, new = (f"Bearer {token_of(name)}" for name in ("viewer", "newcomer"))
    assert tokens.caller(old) is not None
    (tmp_path / "viewer").write_text(token_of("viewer") + "\n" + token_of("newcomer"))
    tokens.look()
    assert tokens.caller(old) == tokens.caller(new) != None  # noqa: E711 (both are the viewer)
    (tmp_path / "viewer").write_text(token_of("newcomer"))
    tokens.look()
    assert tokens.caller(old) is None
    for broken in ("", "short", "x" * 5_000, "a token that is nöt sent"):
        (tmp_path / "viewer").write_text(broken)
        tokens.look()
        assert tokens.caller(new) is None, broken
    (tmp_path / "viewer").unlink()
    tokens.look()
    assert tokens.caller(new) is None
    assert tokens.caller(f"Bearer {token_of('operator')}") is not None


def test_the_last_token_that_is_deleted_admits_nobody_either(tmp_path: Path) -> None:
    file = tmp_path / "only"
    file.write_text(token_of("only"))
    tokens = Tokens(AdminSettings(tokens={"only": AdminToken(role="admin", file=file)}))
    file.unlink()
    tokens.look()
    assert tokens.caller(f"Bearer {token_of('only')}") is None


def test_a_running_server_takes_up_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LOOK_EVERY_S", 0.02)
    made = MadeUpApi(settings_in(tmp_path))
    with closing(AdminServer(made.site)) as server:
        (tmp_path / "viewer").write_text(token_of("newcomer"))

        def is_taken() -> bool:
            return server.app.tokens.caller(f"Bearer {token_of('newcomer')}") is not None

        wait_for(is_taken, LIMIT_S, "the new token")


def test_of_two_entries_with_one_token_the_lower_role_counts(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    (tmp_path / "admin").write_text(token_of("metrics"))
    found = Tokens(settings).caller(f"Bearer {token_of('metrics')}")
    assert found is not None
    assert found.role == "metrics"


def test_no_token_from_a_file_stays_in_memory(tmp_path: Path) -> None:
    tokens = Tokens(settings_in(tmp_path))
    assert "the-secret-token" not in repr(vars(tokens))


def test_a_file_that_cannot_be_used_at_the_start_is_named_and_its_content_is_not(
    tmp_path: Path,
) -> None:
    file = tmp_path / "short"
    file.write_text("secret")
    entry = AdminToken(role="viewer", file=file)
    with pytest.raises(SettingsError, match="16 or more") as refused:
        Tokens(AdminSettings(tokens={"team": entry}))
    assert "secret" not in str(refused.value)
    assert str(file) in str(refused.value)


def test_commands_use_the_token_with_the_highest_role_that_they_can_read(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    assert best_token(settings) == token_of("admin")
    (tmp_path / "admin").unlink()
    assert best_token(settings) == token_of("operator")
    assert best_token(AdminSettings(token=token_of("me"))) == token_of("me")
    assert best_token(AdminSettings()) is None
