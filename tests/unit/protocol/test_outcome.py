"""Dead letters have the unchanged record and the reason."""

from proxy.protocol.body import Delivery, Headers
from proxy.protocol.outcomes import DeadLetter, Rejection, dead_letter_headers, dead_letter_of


def test_an_undeliverable_entry_becomes_the_record_it_was() -> None:
    reason = Rejection("target-unknown", "no such topic")
    asked: Headers = [("timer-topic", b"x"), ("timer-key", b"new"), ("timer-ingress-key", b"own")]
    letter = dead_letter_of(Delivery(5, 7, "x", -1, b"new", b"v", asked, 7, 5, 5), reason)
    assert letter == DeadLetter(7, 5, reason, b"own", b"v", asked[:2], target="x")


def test_a_dead_letter_that_died_again_tells_its_last_reason_only() -> None:
    letter = DeadLetter(7, None, Rejection("b", "second"), None, None, [("timer-error", b"a")])
    stamped = dead_letter_headers(letter, "timer.ingress/0/7")
    assert [value for name, value in stamped if name == "timer-error"] == [b"b"]
