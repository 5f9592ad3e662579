"""A node whose metadata is in an etcd that speaks TLS and takes only clients that it trusts."""

import pytest

from tests.certificates import certificates
from tests.commands import run_command
from tests.etcd_server import Etcd, free_ports, needs_etcd
from tests.hosts import start_at_free_ports
from tools.ottla_peer import OttlaPeer
from tools.peer import PeerFailed

pytestmark = [needs_etcd, pytest.mark.timeout(240)]


@pytest.fixture
def etcd(tmp_path):
    files = certificates()
    etcd = Etcd(
        tmp_path / "etcd",
        "--client-cert-auth",
        f"--trusted-ca-file={files / 'ca.pem'}",
        certificate=(files / "server.key", files / "server.crt"),
    ).start()
    yield etcd
    etcd.kill()


def node(etcd, directory, ca, own):
    """Return a node that is not started."""
    files = certificates()
    port, inner = free_ports(2)
    options = {
        "ottla.cluster": etcd.address("test"),
        "node.id": 1,
        "ottla.inter.broker.port": inner,
        "ottla.etcd.ca.file": files / f"{ca}.pem",
    }
    if own is not None:
        options["ottla.etcd.certificate.file"] = files / f"{own}.crt"
        options["ottla.etcd.key.file"] = files / f"{own}.key"
    return OttlaPeer(directory, options, port=port)


def outcomes(peer):
    """Start it up to five times; yield what it says as it fails, "" when it serves.

    Where many wait for a processor a handshake may not come to its end in time.
    """
    for _ in range(5):
        try:
            start_at_free_ports(peer)
        except PeerFailed as failed:
            yield " ".join(str(failed).split())
        else:
            yield ""


def test_a_node_keeps_its_metadata_in_an_etcd_by_tls(etcd, tmp_path):
    with node(etcd, tmp_path / "data", "ca", "client") as peer:
        assert "" in outcomes(peer)
        code, _, err = run_command(peer.bootstrap, "topic", "create", "t")
        assert code == 0, err
        peer.kill9()
        assert "" in outcomes(peer)
        _, out, _ = run_command(peer.bootstrap, "topic", "list")
        assert "t" in out.split()


@pytest.mark.parametrize(
    ("ca", "own", "says"),
    [
        ("other-ca", "client", "not signed by whom ottla.etcd.ca.file names"),
        ("ca", None, "it wants a certificate (ottla.etcd.certificate.file"),
        ("ca", "expired", "that has not expired"),
    ],
)
def test_a_node_says_which_certificate_does_not_fit(etcd, tmp_path, ca, own, says):
    with node(etcd, tmp_path / "data", ca, own) as peer:
        said = next((each for each in outcomes(peer) if says in each), None)
        assert said is not None, peer.log_text()
        assert "the metadata of the cluster test cannot be reached" in said
        assert "ssl_transport_security" not in said, "that is for who writes grpcio"
