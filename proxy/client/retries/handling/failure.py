"""What a handler may raise to say what is to become of its record, and what that comes to."""

from typing import NamedTuple

from proxy.client.when import Delay, delay_text


class DeadLetter(Exception):
    """Raised by a handler: this record will never be handled, to the dead letters with it at once.

    The reason, text or an exception, ends up in the header `retry-exception`.
    """

    def __init__(self, reason: str | BaseException) -> None:
        self.reason = text_of(reason)
        super().__init__(self.reason)


class RetryLater(Exception):
    """Raised by a handler: give me this record again after `delay`, whatever the retry levels say.

    `delay` is a timedelta or text (`30s`), as in `DelayProducer.send`. It counts as a failure like
    any other: after `max_attempts` of them the record goes to the dead letters. The reason, text or
    an exception, ends up in the header `retry-exception`. Raises RequestRefused for a delay that
    cannot be read. A delay beyond the proxy's `max_delay` makes the record a dead letter of the
    proxy's.
    """

    def __init__(self, delay: Delay, reason: str | BaseException = "") -> None:
        self.delay = delay_text(delay, "RetryLater's delay")
        self.reason = text_of(reason) or f"RetryLater: {self.delay}"
        super().__init__(self.reason)


class Failure(NamedTuple):
    """Why a record was not handled and what is next: a retry, after `delay` if it names one.

    `is_final`: no retry, to the dead letters at once. `is_refused`: its story is not believed, so
    that this group does not sign it.
    """

    reason: str
    is_final: bool = False
    delay: str | None = None
    is_refused: bool = False


def text_of(given: object) -> str:
    """What a handler has raised, or named as its reason, as text: its class when `str` fails."""
    try:
        return str(given)
    except Exception:  # noqa: BLE001 (it is the user's code, and must not end the consumer)
        return type(given).__name__


def described(error: BaseException) -> str:
    """The exception's class and text."""
    return f"{type(error).__name__}: {text_of(error)}"
