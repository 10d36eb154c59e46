"""The audit's list of header names contains all of the proxy's names."""

import re

from proxy.protocol import headers
from spark_jobs.records import headers as header_names

NAME = re.compile(r"[a-z-]+")


def test_the_audit_spells_every_header_as_the_proxy_does() -> None:
    ours = {
        name: value
        for name, value in vars(header_names).items()
        if name.isupper() and isinstance(value, str) and NAME.fullmatch(value)
    }
    theirs = {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in vars(headers).items()
        if name.isupper()
    }
    assert len(ours) > len(headers.KNOWN) / 2
    assert ours == {name: theirs[name] for name in ours}
    assert set(header_names.KNOWN) == headers.KNOWN
    assert set(header_names.STAMPS) == headers.STAMPS
    assert set(header_names.BEYOND_PLAIN) == (
        headers.KNOWN - headers.PLAIN - {headers.FIRST_ORIGIN}
    )
    assert set(header_names.USUAL) == headers.PLAIN | {headers.ID}
