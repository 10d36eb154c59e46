"""The files of the page. They hold no data, so no token is needed for them."""

from functools import cache
from pathlib import Path
from typing import Final

from proxy.admin.exchange import Headers, Reply

FOLDER: Final = Path(__file__).with_name("files")
PREFIX: Final = "/page/"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104
HEADERS: Final[Headers] = (
    (
        "Content-Security-Policy",
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-cache"),
)


def page_address(host: str, port: int) -> str:
    """Where this machine's browsers find the page of a server that listens there."""
    named = "localhost" if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
    return f"http://{named}:{port}/"


def page_file(path: str) -> Reply | None:
    """The file at this path of the admin port; None where it is no part of the page."""
    if path == "/":
        return _files().get("index.html")
    return _files().get(path.removeprefix(PREFIX)) if path.startswith(PREFIX) else None


@cache
def _files() -> dict[str, Reply]:
    return {
        file.name: Reply(200, TYPES[file.suffix], file.read_bytes(), HEADERS)
        for file in FOLDER.iterdir()
        if file.suffix in TYPES
    }
