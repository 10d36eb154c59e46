"""TLS for the admin port: certificates that change on disk, and bounds on handshakes."""

import asyncio
import hashlib
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import structlog

from proxy.config.settings import AdminSettings, AdminTls
from proxy.errors import SettingsError

HANDSHAKE_WITHIN_S: Final = 10
HANDSHAKES_AT_ONCE: Final = 256
"""Limit of connections with unfinished handshakes. If one more is opened, the oldest is closed."""

log = structlog.get_logger(__name__)


class Certificate:
    """The certificate for new connections. Raises SettingsError if it cannot be used at the
    start."""

    def __init__(self, settings: AdminTls) -> None:
        self._files = [file for file in (settings.certificate, settings.key) if file is not None]
        self._digest, self._problem = b"", ""
        self.context: ssl.SSLContext | None = None
        self.look()
        if self._problem:
            remedy = "Correct `admin.tls.certificate` and `admin.tls.key`."
            raise SettingsError(f"The admin port's certificate: {self._problem}.", remedy)

    def look(self) -> None:
        """Load changed files. If they cannot be used, keep the old certificate."""
        if not self._files:
            return
        try:
            digest = hashlib.sha256(b"".join(map(Path.read_bytes, self._files))).digest()
            if digest == self._digest:
                return
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            certificate, key = self._files
            context.load_cert_chain(certificate, key, password="")  # else OpenSSL asks the user
        except (OSError, ValueError) as error:
            problem = f"{' and '.join(map(str, self._files))} cannot be used: {error}"
            if problem != self._problem and self.context is not None:
                log.error("the old certificate of the admin port stays", why=problem)
            self._problem = problem
            return
        if self.context is not None:
            log.info("a new certificate of the admin port is taken up")
        self.context, self._digest, self._problem = context, digest, ""


def trust_own(admin: AdminSettings) -> ssl.SSLContext | None:
    """Return a TLS context that trusts only the certificate in the settings, under any host name.
    Return None without TLS."""
    if admin.tls.certificate is None:
        return None
    context = _trusting(lambda: {"cadata": _first_in(admin.tls.certificate)})
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def trust_named(admin: AdminSettings) -> ssl.SSLContext:
    """Return a TLS context for peers, and for proxies named with --admin. It trusts the authorities
    in `admin.tls.ca`, by default the system's."""
    return _trusting(lambda: {"cafile": admin.tls.ca})


def _trusting(roots: Callable[[], dict[str, Any]]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(**roots())
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"The certificates for the admin port cannot be read: {error}.",
            "Correct `admin.tls`.",
        ) from None


def _first_in(file: Path | None) -> str:
    """Return the first certificate of a chain."""
    assert file is not None
    end = "-----END CERTIFICATE-----"
    return file.read_text("ascii").partition(end)[0] + end


class TlsProtocol(SSLProtocol):
    """TLS before an HTTP connection. `open_now` holds all connections, the oldest first."""

    max_size = 32_768
    """Bytes of the read buffer. The default of asyncio is eight times as large."""

    def __init__(
        self, http: asyncio.Protocol, context: ssl.SSLContext, open_now: dict["TlsProtocol", None]
    ) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            http,
            context,
            cast(Any, None),  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_WITHIN_S,
            ssl_shutdown_timeout=HANDSHAKE_WITHIN_S,
        )
        self.http: Any = http
        self._open_now = open_now
        self.raw: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        shaking = [one for one in self._open_now if one.http.transport is None]
        if len(shaking) >= HANDSHAKES_AT_ONCE:
            shaking[0].raw.abort()
        self._open_now[self] = None
        self.raw = self.http.raw = transport
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open_now.pop(self, None)
        super().connection_lost(exc)
        # Without this, objects refer to themselves. They would never be freed, because the garbage
        # collector is off in a worker's process.
        if exc is not None:
            exc.__traceback__ = None
        vars(self.raw).pop("_read_ready_cb", None)
        self.http = self.raw = None
