"""Send records only if a database transaction succeeds. Start `make run` first.

A half message is stored, your transaction runs, then commit or rollback follows. After a crash
in between the proxy asks your listener for the result.
"""

import uuid

from client_arrivals import BOOTSTRAP, Arrivals

from kafka_delay import HalfMessage, State, TransactionalDelayProducer

paid: set[str] = set()  # stands for your database


class Listener:
    """Look up the result of a transaction, perhaps after a crash or in another process."""

    def check(self, half: HalfMessage) -> State:
        """Return COMMIT or ROLLBACK, or UNKNOWN to be asked again later."""
        state = State.COMMIT if half.id in paid else State.ROLLBACK
        print(f"asked about {half.value!r} (check {half.check}): {state.name}")
        return state


def pay(half: HalfMessage) -> State:
    """Succeed, and leave a mark under the half message's id."""
    paid.add(half.id)
    return State.COMMIT


def fail(_: HalfMessage) -> State:
    """Fail, so that the half message is rolled back."""
    return State.ROLLBACK


def pay_and_crash(half: HalfMessage) -> State:
    """Succeed, and end the program before the commit."""
    paid.add(half.id)
    raise SystemError("out of power")


topic = f"orders.checks-{uuid.uuid4().hex[:8]}"  # your program needs a fixed name
with (
    Arrivals("orders") as arrivals,
    TransactionalDelayProducer({"bootstrap.servers": BOOTSTRAP}, Listener(), topic) as producer,
):
    producer.send_in_transaction("orders", "paid", "k1", local_transaction=pay)
    producer.send_in_transaction("orders", "not paid", "k1", local_transaction=fail)
    # Delays and transactions combine.
    producer.send_in_transaction("orders", "paid, later", "k1", delay="3s", local_transaction=pay)
    try:
        # The first check-back comes after the immunity time, 6 s by default.
        producer.send_in_transaction(
            "orders", "paid, but who knows", "k1", local_transaction=pay_and_crash, immunity="2s"
        )
    except SystemError as error:
        print("crashed:", error, error.__notes__)
    for value in arrivals.wait(4, within_s=12):
        print("arrived:", value)
