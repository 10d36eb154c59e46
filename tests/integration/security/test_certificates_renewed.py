"""A running proxy picks up certificates and passwords that are renewed on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installation.admin_client import call
from tests.support.installation.certificates import Authority, Identity
from tests.support.installation.installation import Installation
from tests.support.installation.secured_broker import HOST, MUTUAL, SCRAM
from tests.support.installation.secured_site import PASSWORD, USER, SecuredSite, secured_site
from tests.support.installation.story import Story
from tests.support.oracle.asked import Rules
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 180


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SecuredSite]:
    with secured_site(tmp_path, open_to_all=True) as made:
        yield made


def test_certificates_renewed_on_disk_are_picked_up_without_a_restart(
    site: SecuredSite, installation: Installation
) -> None:
    """The broker changes its certificate and no longer trusts the old ones. A half-done renewal (a
    new certificate with the old key) must not stop the proxy."""
    told = Story(installation, Rules(), kafka=site.kafka(MUTUAL))
    orders, proxy = installation.target(), told.proxy
    proxy.start_ready()
    assert call(proxy, "PUT", "/pauses/nobody")[0] == 200
    told.tell("before", topic=orders)
    told.send()
    installation.await_ends(1)

    renewed = Authority("renewed")
    own = renewed.issue("proxy")
    old_key = Path(site.folder / "key.pem").read_text("ascii")
    site.client_certificate(Identity(own.certificate, old_key))
    site.trust(renewed)
    site.broker.restart(renewed, renewed.issue("broker", [HOST]))
    told.tell("meanwhile", topic=orders)
    told.send()
    wait_for(lambda: "key values mismatch" in proxy.log, WITHIN_S, "the half renewal to be met")
    assert proxy.get("/readyz")[0] == 503

    site.client_certificate(own)
    installation.await_ends(2)
    proxy.wait_ready()
    wait_for(
        lambda: call(proxy, "DELETE", "/pauses/nobody")[0] == 200, WITHIN_S, "the API to write"
    )
    told.end()
    assert len(told.delivered("meanwhile")) == 1


def test_a_password_renewed_on_disk_is_picked_up_without_a_restart(
    site: SecuredSite, installation: Installation
) -> None:
    """The broker closes all connections, and no longer accepts the old password. A file that is
    missing for a moment must not stop the proxy."""
    file = site.folder / "password"
    file.write_text(f"{PASSWORD}\n", "utf-8")
    given = site.kafka(SCRAM, sasl_password_location=str(file))
    del given["sasl.password"]
    told = Story(installation, Rules(), kafka=given)
    orders, proxy = installation.target(), told.proxy
    proxy.start_ready()
    told.tell("before", topic=orders)
    told.send()
    installation.await_ends(1)

    renewed = PASSWORD[::-1]
    site.broker.add_user(USER, renewed)
    site.broker.restart(site.authority, site.own)
    told.tell("meanwhile", topic=orders)
    told.send()
    wait_for(lambda: "invalid credentials" in proxy.log, WITHIN_S, "the password to be refused")
    file.unlink()
    wait_for(lambda: "cannot be read" in proxy.log, WITHIN_S, "the missing file to be met")

    file.write_text(renewed, "utf-8")
    installation.await_ends(2)
    proxy.wait_ready()
    told.end()
    assert len(told.delivered("meanwhile")) == 1
    assert PASSWORD not in proxy.log
    assert renewed not in proxy.log
