"""Records that appear only if a database transaction succeeds. Start `make run` first.

A half message is stored, your transaction runs, then commit or rollback follows. If a crash comes
in between, the proxy asks your listener what became of it.
"""

import uuid

from client_arrivals import BOOTSTRAP, Arrivals

from kafka_delay import HalfMessage, State, TransactionalDelayProducer

paid: set[str] = set()  # stands for your database


class Listener:
    """Looks up what became of a transaction: maybe after a crash, maybe in another process."""

    def check(self, half: HalfMessage) -> State:
        """COMMIT and ROLLBACK decide; UNKNOWN makes the proxy ask again later."""
        state = State.COMMIT if half.id in paid else State.ROLLBACK
        print(f"asked about {half.value!r} (check {half.check}): {state.name}")
        return state


def pay(half: HalfMessage) -> State:
    """A transaction that succeeds; it leaves a mark under the half message's id."""
    paid.add(half.id)
    return State.COMMIT


def fail(_: HalfMessage) -> State:
    """One that has to be rolled back."""
    return State.ROLLBACK


def pay_and_crash(half: HalfMessage) -> State:
    """One that succeeds, but the program dies before it can say so."""
    paid.add(half.id)
    raise SystemError("out of power")


topic = f"orders.checks-{uuid.uuid4().hex[:8]}"  # in a program of yours: one name for all
with (
    Arrivals("orders") as arrivals,
    TransactionalDelayProducer({"bootstrap.servers": BOOTSTRAP}, Listener(), topic) as producer,
):
    producer.send_in_transaction("orders", "paid", "k1", local_transaction=pay)
    producer.send_in_transaction("orders", "not paid", "k1", local_transaction=fail)
    # Delays and transactions combine.
    producer.send_in_transaction("orders", "paid, later", "k1", delay="3s", local_transaction=pay)
    try:
        # The proxy asks first after the immunity time: 6 s unless you say otherwise.
        producer.send_in_transaction(
            "orders", "paid, but who knows", "k1", local_transaction=pay_and_crash, immunity="2s"
        )
    except SystemError as error:
        print("crashed:", error, error.__notes__)
    for value in arrivals.wait(4, within_s=12):
        print("arrived:", value)
