"""What grpcio says of a TLS connection that there is not, as people should read it."""

import pytest

from ottla.metadata.etcd.tls_trouble import trouble_of

BEGIN = "failed to connect to all addresses; last error: "


@pytest.mark.parametrize(
    ("details", "says"),
    [
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", "has expired"),
        ("CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate", "ottla.etcd.ca.file"),
        ("Failed to create security handshaker.", "do not belong together"),
        ("WRONG_VERSION_NUMBER", "etcd:// instead"),
        ("Unwrap failed (TSI_DATA_CORRUPTED)", "it wants a certificate"),
        ("UNKNOWN: something new", "UNKNOWN: something new"),
    ],
)
def test_what_grpcio_says_is_said_in_words_of_the_options(details, says):
    assert says in trouble_of(BEGIN + details)
    assert "last error" not in trouble_of(BEGIN + details)
