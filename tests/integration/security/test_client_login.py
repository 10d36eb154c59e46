"""The Python client with a wrong password: each error of waiting names the login."""

from __future__ import annotations

import pytest

from kafka_delay import DelayProducer, StillUnsent
from tests.support.installation.secured_broker import SCRAM
from tests.support.installation.secured_site import PASSWORD, SecuredSite
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 120


def test_a_wrong_password_is_named_by_the_errors_of_the_producer(site: SecuredSite) -> None:
    heard = list[object]()
    wrong = site.connection(SCRAM, sasl_password="wrong-password")
    producer = DelayProducer({**wrong, "error_cb": heard.append})
    sent = producer.send("orders", "v", delay="1h")
    wait_for(lambda: "Authentication failed" in str(heard), WITHIN_S, "the refused login")
    names = "Authentication failed.*Check sasl.username, sasl.password"
    with pytest.raises(TimeoutError, match=names):
        sent.result(0)
    with pytest.raises(StillUnsent, match=names) as error:
        producer.close(0)
    assert not {PASSWORD, "wrong-password"} & set(str(error.value).split())
