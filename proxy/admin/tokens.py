"""The tokens of the admin port, and the roles of their callers (docs/admin-api.md#roles)."""

import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import structlog

from proxy.admin.problem import Problem
from proxy.config.settings import (
    LONGEST_USER_NAME,
    AdminSettings,
    AdminToken,
    Role,
    checked_token,
)
from proxy.errors import SettingsError

ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""The roles, the one with the fewest rights first."""
MOST_FILE_BYTES: Final = 4_096
SETTINGS_TOKEN: Final = "admin.token"  # noqa: S105 (a name)

F = TypeVar("F", bound=Callable[..., Any])
log = structlog.get_logger(__name__)


def _rank(role: Role) -> int:
    return ROLES.index(role)


def needs(least: Role) -> Callable[[F], F]:
    """Mark a call with the lowest role that may make it. `CallRoute` needs this mark."""

    def mark(call: F) -> F:
        vars(call)["least_role"] = least
        return call

    return mark


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    name: str
    role: Role
    contents: bool
    """Whether the caller may read keys, values and headers of records."""
    is_trusted: bool = False
    """Whether the caller is a login proxy. It names a user in each request, and may call only for
    that user."""

    @classmethod
    def of(cls, name: str, entry: AdminToken, role: Role | None = None) -> "Caller":
        """Return the caller of an entry of `admin.tokens`. `role` replaces the entry's role."""
        role = role or entry.role
        contents = entry.contents or _rank(role) > _rank("viewer")
        return cls(name, role, contents, entry.trusted)

    def refuse_below(self, least: Role) -> None:
        """Raise Problem if the call needs a higher role."""
        if _rank(self.role) < _rank(least):
            detail = f"This call needs the role {least}. {self.name} has the role {self.role}."
            raise Problem(403, "role-needed", detail)

    def refuse_contents(self) -> None:
        """Raise Problem if the caller may not read contents of records."""
        if not self.contents:
            detail = (
                f"{self.name} may not read the contents of records. Use a token of the role "
                "operator, or set `contents: true` for its entry of `admin.tokens`."
            )
            raise Problem(403, "contents-needed", detail)


LOCAL: Final = Caller("local", "admin", contents=True)
"""Stands for every caller if no token is set. Then only programs on this machine may call."""


class Tokens:
    """The SHA-256 of all valid tokens. Raises SettingsError if a file cannot be used at the
    start."""

    def __init__(self, settings: AdminSettings) -> None:
        self._settings, self.is_needed = settings, settings.has_tokens
        self._known: list[tuple[bytes, Caller]] = []
        self._problems: dict[str, str] = {}
        self.look()
        for name, why in self._problems.items():
            raise SettingsError(
                f"The token {name} cannot be used: {why}.", f"Correct {_file(name)}."
            )

    def look(self) -> None:
        """Read all token files again. A file that cannot be used admits nobody."""
        known, problems = list[tuple[bytes, Caller]](), dict[str, str]()
        if self._settings.token is not None:
            admin = Caller(SETTINGS_TOKEN, "admin", contents=True)
            known.append((_hash(self._settings.token), admin))
        for name, entry in self._settings.tokens.items():
            caller = Caller.of(name, entry)
            try:
                known += [(_hash(token), caller) for token in tokens_in(entry.file)]
            except ValueError as error:
                problems[name] = str(error)
        for name, why in problems.items() - self._problems.items():
            log.error("a token of the admin port admits nobody", token=name, why=why)
        if self._known and known != self._known:
            log.info("tokens of the admin port taken up", tokens=[one.name for _, one in known])
        self._known, self._problems = known, problems

    def caller(self, authorization: str) -> Caller | None:
        """Return the caller whose token is in the header. Compare all tokens, each in constant
        time."""
        if not self.is_needed:
            return LOCAL
        scheme, _, token = authorization.partition(" ")
        sent = _hash(token)
        found = [caller for known, caller in self._known if hmac.compare_digest(known, sent)]
        if scheme.lower() != "bearer" or not found:
            return None
        return min(found, key=lambda one: (not one.is_trusted, _rank(one.role), one.contents))

    def user_of(self, proxy: Caller, headers: Iterable[tuple[str, str]], site: str) -> Caller:
        """Return the user for whom a login proxy calls. Raises Problem unless the login proxy names
        one user.

        A browser sends the login proxy's cookie also from pages of other websites. So `site`, the
        value of Sec-Fetch-Site, must not name another website."""
        header = self._settings.trusted_header or ""
        names = [text for name, text in headers if name == header.lower()]
        user = _user_name(names[0]) if len(names) == 1 else None
        if user is None:
            detail = f"{proxy.name} must send the header {header} once, with the name of a user."
            raise Problem(403, "user-needed", detail)
        if site not in {"none", "same-origin"}:
            raise Problem(403, "foreign-page", "Another site's page may not call the API.")
        role = self._settings.users.get(user)
        entry = self._settings.tokens[proxy.name]
        return replace(Caller.of(f"{user} via {proxy.name}", entry, role), is_trusted=False)


def _user_name(header: str) -> str | None:
    """Return the user's name in a header, or None if it is empty, too long or unprintable."""
    try:
        name = header.encode("latin-1").decode().strip()
    except ValueError:
        return None
    return name if name.isprintable() and 0 < len(name) <= LONGEST_USER_NAME else None


def tokens_in(file: Path) -> list[str]:
    """Return the tokens in a file, one on each line. Raises ValueError with the reason."""
    lines = [line.strip() for line in _text_of(file).splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{file} is empty")
    for number, line in enumerate(lines, 1):
        try:
            checked_token(line)
        except ValueError as error:
            raise ValueError(f"{file}, token {number}: {error}") from None
    return lines


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None
    if len(content) > MOST_FILE_BYTES:
        raise ValueError(f"{file} has more than {MOST_FILE_BYTES} bytes")
    return content.decode("ascii", "replace")


def best_token(settings: AdminSettings) -> str | None:
    """Return the token that commands use: of all tokens that this process can read, one with the
    highest role. Return None if there is none."""
    if settings.token is not None:
        return settings.token
    own = [entry for entry in settings.tokens.values() if not entry.trusted]
    return next(_readable(sorted(own, key=lambda one: -_rank(one.role))), None)


def _readable(entries: list[AdminToken]) -> Iterator[str]:
    for entry in entries:
        try:
            yield tokens_in(entry.file)[0]
        except ValueError:
            continue


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _file(name: str) -> str:
    return f"`admin.tokens.{name}.file`"
