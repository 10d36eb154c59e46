"""The audit's own list of header names holds what the proxy's holds."""

from proxy.records import headers
from spark_jobs.records import headers as header_names


def test_the_audit_spells_every_header_as_the_proxy_does() -> None:
    ours = {n: v for n, v in vars(header_names).items() if isinstance(v, str) and n.isupper()}
    theirs = {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in vars(headers).items()
        if name.isupper()
    }
    assert ours == {name: theirs[name] for name in ours}
    assert set(header_names.KNOWN) == headers.KNOWN
    assert set(header_names.STAMPS) == headers.STAMPS
    assert set(header_names.BEYOND_PLAIN) == (
        headers.KNOWN - headers.PLAIN - {headers.FIRST_ORIGIN}
    )
    assert set(header_names.USUAL) == headers.PLAIN | {headers.ID}
