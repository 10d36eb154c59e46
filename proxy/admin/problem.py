"""Refusals of the admin port: a status code, a code word for programs, a sentence for people."""

from collections.abc import Mapping


class Problem(Exception):
    """A request that is refused."""

    def __init__(
        self, code: int, error: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.code, self.error, self.detail = code, error, detail
        self.headers: Mapping[str, str] = headers or {}


def bad_request(detail: str) -> Problem:
    """Return the refusal of a request that cannot be read."""
    return Problem(400, "bad-request", detail)
