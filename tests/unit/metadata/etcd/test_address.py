import pytest

from ottla.metadata.etcd.address import EtcdAddress, NotAnEtcd, parse_address


@pytest.mark.parametrize(
    ("text", "endpoints", "name", "is_tls"),
    [
        ("etcd://h1/c", ("h1:2379",), "c", False),
        ("etcd://h1:1,h2:2,h3/prod-1.a_b", ("h1:1", "h2:2", "h3:2379"), "prod-1.a_b", False),
        ("etcds://10.0.0.1:99/c", ("10.0.0.1:99",), "c", True),
        ("etcd://[::1],[fe80::2]:5/c", ("[::1]:2379", "[fe80::2]:5"), "c", False),
    ],
)
def test_addresses(text, endpoints, name, is_tls):
    assert parse_address(text) == EtcdAddress(endpoints, name, is_tls)
    assert parse_address(str(parse_address(text))) == EtcdAddress(endpoints, name, is_tls)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h1/c",
        "http://h1/c",
        "etcd://h1",
        "etcd://h1/",
        "etcd:///c",
        "etcd://h1,/c",
        "etcd://h1:0/c",
        "etcd://h1:65536/c",
        "etcd://h1:x/c",
        "etcd://h1:1:2/c",
        "etcd://::1/c",
        "etcd://[::1/c",
        "etcd://user@h1/c",
        "etcd://h 1/c",
        "etcd://h1,h1/c",
        "etcd://h1/a/b",
        "etcd://h1/ä",
        f"etcd://h1/{'x' * 101}",
        "etcd://" + ",".join(f"h{n}" for n in range(17)) + "/c",
    ],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(NotAnEtcd):
        parse_address(text)


def test_what_is_on_this_machine():
    assert parse_address("etcd://127.0.0.1,localhost:5,[::1]/c").is_on_this_machine
    assert not parse_address("etcd://127.0.0.1,h2/c").is_on_this_machine
