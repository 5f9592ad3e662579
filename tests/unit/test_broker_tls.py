"""A node with TLS listeners: who its clients are, and what keeps it from starting."""

import asyncio
import ssl
import struct

import pytest

from ottla.broker import Broker
from ottla.config.files import broker_config
from ottla.env.server_tls import ServerTlsUnusable
from ottla.handlers.router import Router
from tests.certificates import certificates, make


def broker(**options):
    directory = certificates()
    texts = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(directory / "server.pem"),
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.client.auth": "requested",
    }
    return Broker(broker_config(texts, options), memory=True)


def trusting(name=None):
    context = ssl.create_default_context(cafile=certificates() / "ca.pem")
    if name is not None:
        context.load_cert_chain(certificates() / f"{name}.pem")
    return context


async def ask_versions(address, context):
    """Send ApiVersions and return the answer's length; 0: the connection was closed."""
    reader, writer = await asyncio.open_connection(*address, ssl=context)
    writer.write(struct.pack(">ihhih", 10, 18, 0, 7, -1))
    try:
        head = await reader.readexactly(4)
        return len(await reader.readexactly(int.from_bytes(head, "big")))
    except asyncio.IncompleteReadError:
        return 0
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("name", "rules", "principal"),
    [
        (None, "DEFAULT", "User:ANONYMOUS"),
        ("client", "DEFAULT", r"User:CN=client,O=Ottla\, Test,C=AT"),
        ("client", "RULE:^CN=(.*?),.*$/$1/U", "User:CLIENT"),
        ("client", "RULE:^UID=(.*?),.*$/$1/", None),
        (None, "RULE:^UID=(.*?),.*$/$1/", "User:ANONYMOUS"),
    ],
)
async def test_the_certificate_says_who_a_client_is(monkeypatch, name, rules, principal):
    seen = []
    dispatch = Router.dispatch

    def watched(self, frame, client, keep):
        seen.append((str(client.principal), client.listener))
        return dispatch(self, frame, client=client, keep=keep)

    monkeypatch.setattr(Router, "dispatch", watched)
    node = broker(**{"ssl.principal.mapping.rules": rules})
    address = (await node.start()).doors.address
    try:
        answered = await ask_versions(address, trusting(name))
    finally:
        await node.stop()
    assert seen == ([] if principal is None else [(principal, "SSL")])
    assert (answered > 0) == (principal is not None)


HOSTILE = {
    "many names": ("/CN=a" * 600, None),
    "several names": ("/CN=root/CN=ann", "User:CN=ann,CN=root"),
    "several at once": ("/CN=root+OU=b+O=c", "User:O=c+OU=b+CN=root"),
    "escapes": (r"/CN=a,CN\=root\/\+\"#;<>", r"User:CN=a\,CN\=root/\+\"\#\;\<\>"),
    "a line's end": ("/CN=a\nUser:root", "User:CN=a\nUser:root"),
    "the other way": ("/CN=\u202eroot", "User:CN=\u202eroot"),
    "blanks": ("/CN= root ", "User:CN=\\ root\\ "),
    "wide letters": ("/CN=\uff52oot", "User:CN=\uff52oot"),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_hostile_name_is_itself_or_nobodys(monkeypatch, caplog, tmp_path, what):
    """Of a certificate that the authority has signed without a look at it."""
    subject, principal = HOSTILE[what]
    for file in ("ca.pem", "ca.key"):
        (tmp_path / file).write_bytes((certificates() / file).read_bytes())
    make(tmp_path, "hostile", subject=subject)
    seen = []
    dispatch = Router.dispatch

    def watched(self, frame, client, keep):
        seen.append(str(client.principal))
        return dispatch(self, frame, client=client, keep=keep)

    monkeypatch.setattr(Router, "dispatch", watched)
    node = broker()
    address = (await node.start()).doors.address
    try:
        context = trusting()
        context.load_cert_chain(tmp_path / "hostile.pem")
        answered = await ask_versions(address, context)
        assert await ask_versions(address, trusting("client")), "others come in"
    finally:
        await node.stop()
    assert seen[:-1] == ([] if principal is None else [principal])
    assert (answered > 0) == (principal is not None)
    assert [one for one in caplog.records if one.levelname in ("ERROR", "CRITICAL")] == []


async def test_a_certificate_that_cannot_be_used_keeps_the_node_from_starting():
    with pytest.raises(ServerTlsUnusable, match="has no private key"):
        await broker(**{"ssl.keystore.location": str(certificates() / "server.crt")}).start()


def shown_by(certificate):
    return ssl.PEM_cert_to_DER_cert((certificates() / f"{certificate}.crt").read_text())


async def shown(address):
    """Return the certificate that a new connection sees, as DER."""
    _, writer = await asyncio.open_connection(*address, ssl=trusting())
    try:
        return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()


def put(path, content):
    """Replace a file in one step, as a tool that renews certificates does."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


async def test_new_certificates_are_shown_and_broken_ones_are_not(tmp_path, caplog):
    path = tmp_path / "server.pem"
    names = ("server.pem", "second.pem", "second.key", "server.crt")
    server, second, key, other = ((certificates() / name).read_bytes() for name in names)
    put(path, server)
    options = {"ssl.keystore.location": str(path), "ottla.ssl.reload.interval.ms": "0"}
    node = broker(**options)
    doors = (await node.start()).doors
    try:
        reader, writer = await asyncio.open_connection(*doors.address, ssl=trusting())
        assert await shown(doors.address) == shown_by("server")
        for broken in (b"", second[:200], key, key + other):
            put(path, broken)
            await doors.certificates.renew()
            await doors.certificates.renew()
            assert await shown(doors.address) == shown_by("server")
        path.unlink()
        await doors.certificates.renew()
        assert await shown(doors.address) == shown_by("server")
        assert caplog.text.count("SSL keeps its certificate") == 3, "each reason once"
        assert "PRIVATE KEY-----" not in caplog.text.replace("'BEGIN PRIVATE KEY'", "")
        put(path, second)
        await doors.certificates.renew()
        assert await shown(doors.address) == shown_by("second")
        writer.write(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        assert len(await reader.readexactly(4)) == 4, "who is connected stays connected"
        writer.close()
    finally:
        await node.stop()


async def test_an_expired_certificate_takes_the_place_of_no_good_one(tmp_path, caplog):
    """It was taken without a word, and no client could connect any more."""
    path = tmp_path / "server.pem"
    server, expired, second = (
        (certificates() / f"{name}.pem").read_bytes() for name in ("server", "expired", "second")
    )
    put(path, server)
    node = broker(**{"ssl.keystore.location": str(path), "ottla.ssl.reload.interval.ms": "0"})
    doors = (await node.start()).doors
    try:
        put(path, expired)
        for _ in range(3):
            await doors.certificates.renew()
        assert await ask_versions(doors.address, trusting()) > 0
        assert await shown(doors.address) == shown_by("server")
        told = "SSL keeps its certificate: the certificate has expired, at "
        assert caplog.text.count(told) == 1
        put(path, second)
        await doors.certificates.renew()
        assert await shown(doors.address) == shown_by("second")
    finally:
        await node.stop()


async def test_who_starts_with_an_expired_certificate_is_told_and_may_mend_it(tmp_path, caplog):
    path = tmp_path / "server.pem"
    put(path, (certificates() / "expired.pem").read_bytes())
    node = broker(**{"ssl.keystore.location": str(path), "ottla.ssl.reload.interval.ms": "0"})
    doors = (await node.start()).doors
    try:
        assert "listener SSL: the certificate has expired, at " in caplog.text
        put(path, (certificates() / "second.pem").read_bytes())
        await doors.certificates.renew()
        assert await shown(doors.address) == shown_by("second")
    finally:
        await node.stop()


async def test_a_listeners_broken_file_does_not_keep_another_from_new_certificates(tmp_path):
    trust, path = tmp_path / "trust.pem", tmp_path / "server.pem"
    authority, server, second = (
        (certificates() / name).read_bytes() for name in ("ca.pem", "server.pem", "second.pem")
    )
    put(trust, authority)
    put(path, server)
    node = broker(
        **{
            "listeners": "ONE://127.0.0.1:0,TWO://127.0.0.1:0",
            "listener.security.protocol.map": "ONE:SSL,TWO:SSL",
            "listener.name.one.ssl.truststore.location": str(trust),
            "listener.name.two.ssl.keystore.location": str(path),
            "ottla.ssl.reload.interval.ms": "0",
        }
    )
    doors = (await node.start()).doors
    try:
        put(trust, authority.replace(b"\nMII", b"\nM\xff\x00"))
        put(path, second)
        await doors.certificates.renew()
        assert await shown(doors.addresses["ONE"]) == shown_by("server")
        assert await shown(doors.addresses["TWO"]) == shown_by("second")
        assert await ask_versions(doors.addresses["ONE"], trusting("client"))
    finally:
        await node.stop()


async def test_files_are_looked_at_again_and_again(tmp_path):
    path = tmp_path / "server.pem"
    put(path, (certificates() / "server.pem").read_bytes())
    options = {"ssl.keystore.location": str(path), "ottla.ssl.reload.interval.ms": "5"}
    node = broker(**options)
    doors = (await node.start()).doors
    try:
        assert await shown(doors.address) == shown_by("server")
        put(path, (certificates() / "second.pem").read_bytes())
        for _ in range(2000):
            if await shown(doors.address) == shown_by("second"):
                break
        else:
            raise AssertionError("the new certificate is never shown")
    finally:
        await node.stop()
