"""An etcd that speaks TLS and wants certificates: what is said when one of them does not fit."""

import pytest

from ottla.env.clock import SystemClock
from ottla.metadata.etcd.members import Members, Security
from ottla.metadata.etcd.store import EtcdStore
from ottla.metadata.store import Put, Unavailable
from tests.certificates import certificates
from tests.etcd_server import Etcd, needs_etcd

pytestmark = [needs_etcd, pytest.mark.timeout(120)]


def start(directory, name, *options):
    files = certificates()
    return Etcd(
        directory / name, *options, certificate=(files / f"{name}.key", files / f"{name}.crt")
    ).start()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    """One that takes clients only with a certificate of the CA."""
    trusted = f"--trusted-ca-file={certificates() / 'ca.pem'}"
    etcd = start(tmp_path_factory.mktemp("tls"), "server", "--client-cert-auth", trusted)
    yield etcd
    etcd.kill()


@pytest.fixture(scope="module")
def expired(tmp_path_factory):
    """One whose own certificate has expired."""
    etcd = start(tmp_path_factory.mktemp("tls"), "expired")
    yield etcd
    etcd.kill()


def security(ca="ca", own="client", key=None):
    read = lambda name: (certificates() / name).read_bytes()  # noqa: E731
    if own is None:
        return Security(read(f"{ca}.pem"))
    return Security(read(f"{ca}.pem"), read(f"{key or own}.key"), read(f"{own}.crt"))


async def commit(etcd, security):
    store = EtcdStore(Members([etcd.endpoint], is_tls=True, security=security), SystemClock())
    try:
        await store.commit([], [Put("k", b"v")])
        return (await store.get("k")).value
    finally:
        await store.close()


async def until_said(etcd, security, says):
    """Return why there is no connection: a handshake may not end in time on a busy machine."""
    heard = []
    for _ in range(10):
        with pytest.raises(Unavailable) as refused:
            await commit(etcd, security)
        heard.append(str(refused.value))
        if says in heard[-1]:
            return heard[-1]
    raise AssertionError(heard)


async def test_a_certificate_that_etcd_trusts_opens_the_store(etcd):
    assert await commit(etcd, security()) == b"v"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ca": "other-ca"}, "not signed by whom ottla.etcd.ca.file names"),
        ({"own": None}, "it wants a certificate (ottla.etcd.certificate.file"),
        ({"own": "stranger"}, "by its --trusted-ca-file"),
        ({"own": "expired"}, "that has not expired"),
        ({"key": "second"}, "do not belong together"),
    ],
)
async def test_what_does_not_fit_is_said(etcd, given, says):
    said = await until_said(etcd, security(**given), says)
    assert f"no etcd answers at {etcd.endpoint} by TLS ({etcd.endpoint}: " in said


async def test_an_etcd_whose_certificate_has_expired_is_not_believed(expired):
    await until_said(expired, security(), "its certificate has expired")
