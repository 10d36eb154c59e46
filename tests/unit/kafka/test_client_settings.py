"""Names derived from the settings of a process."""

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.config.settings import Settings
from proxy.kafka.access import transactional_right
from proxy.kafka.client_settings import consumer_config, producer_config

NAMES = st.text("a-/.0123", min_size=1, max_size=6)
NUMBERS = st.integers(0, 12)
PRODUCERS = st.tuples(NAMES, NAMES, NUMBERS, NUMBERS)


def transactional_id(group_id: str, instance_id: str, worker: int, number: int) -> str:
    settings = Settings(group_id=group_id, instance_id=instance_id)
    ident: str = producer_config(settings, worker, number)["transactional.id"]
    assert ident.startswith(transactional_right(settings).name)
    return ident


@given(PRODUCERS, PRODUCERS)
@example(("a", "b-a-0", 0, 0), ("a-b", "a-0", 0, 0))
@example(("a", "b-0/1", 0, 0), ("a", "b", 0, 0))
def test_no_two_producers_share_a_transactional_id(
    one: tuple[str, str, int, int], other: tuple[str, str, int, int]
) -> None:
    """Invariant: ids are equal only for equal group, instance, worker and number."""
    assert (transactional_id(*one) == transactional_id(*other)) == (one == other)


@given(st.tuples(NAMES, NUMBERS), st.tuples(NAMES, NUMBERS))
def test_no_two_workers_of_a_group_are_the_same_static_member(
    one: tuple[str, int], other: tuple[str, int]
) -> None:
    """Invariant: equal names mean equal instances and workers."""
    named = [
        consumer_config(Settings(instance_id=instance_id), worker)["group.instance.id"]
        for instance_id, worker in (one, other)
    ]
    assert (named[0] == named[1]) == (one == other)
