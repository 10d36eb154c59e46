"""Token endpoint of OAuth 2 (client credentials). The secured broker accepts its signed tokens."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs

from tests.support.installation.certificates import EXPONENT, Key

HOST: Final = "127.0.0.1"
LIFE_S: Final = 300
KEY_ID: Final = "tests"


class TokenEndpoint:
    """Server that gives a token to each user who sends the right secret. Tests may change its
    attributes."""

    issuer, audience = "https://tokens.example", "kafka"

    def __init__(self, folder: Path, key: Key, users: Mapping[str, str]) -> None:
        self.life_s: float = LIFE_S
        self.failure: HTTPStatus | None = None
        """The answer to all requests, instead of a token."""
        self.claims: dict[str, Any] = {}
        """Claims of new tokens that differ from the normal ones."""
        self.issued: list[dict[str, Any]] = []
        """Claims of all tokens."""
        self.asked: list[dict[str, list[str]]] = []
        """Forms of all requests."""
        self._key, self._users = key, dict(users)
        keys = folder / "keys.json"
        keys.write_text(json.dumps({"keys": [_public(key)]}), "ascii")
        self.keys_url = keys.as_uri()
        self._server = ThreadingHTTPServer((HOST, 0), self._handler())
        self.url = f"http://{HOST}:{self._server.server_port}/token"

    def token(self, user: str) -> str:
        now_s = time.time()
        told = {"iss": self.issuer, "aud": self.audience, "sub": user, "scope": "kafka"}
        claims = {**told, "iat": now_s, "exp": now_s + self.life_s, **self.claims}
        self.issued.append(claims)
        signed = f"{_part({'alg': 'RS256', 'kid': KEY_ID})}.{_part(claims)}"
        return f"{signed}.{_text(self._key.sign(signed.encode()))}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, authorization: str, form: str) -> tuple[HTTPStatus, dict[str, Any]]:
        self.asked.append(parse_qs(form))
        if self.failure is not None:
            return self.failure, {"error": "temporarily_unavailable"}
        user, _, secret = b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if self._users.get(user) != secret:
            return HTTPStatus.UNAUTHORIZED, {"error": "invalid_client"}
        token = {"access_token": self.token(user), "token_type": "Bearer"}
        return HTTPStatus.OK, {**token, "expires_in": int(self.life_s)}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status, answer = endpoint._answer(self.headers.get("Authorization", ""), form)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                pass

        return Handler


def _public(key: Key) -> dict[str, str]:
    numbers = {"n": key.modulus, "e": EXPONENT}
    shown = {
        name: _text(one.to_bytes((one.bit_length() + 7) // 8)) for name, one in numbers.items()
    }
    return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID, **shown}


def _part(content: Mapping[str, Any]) -> str:
    return _text(json.dumps(content).encode())


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
