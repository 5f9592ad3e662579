"""``max.connections.per.ip.overrides``: what it takes, and what it means to connections."""

import pytest

from ottla.config.addresses import read_counts
from ottla.config.broker import MAX_CONNECTIONS_PER_IP_OVERRIDES
from ottla.config.files import broker_config
from ottla.config.option import InvalidConfig
from ottla.settings import limits_of

KEY = MAX_CONNECTIONS_PER_IP_OVERRIDES.key


@pytest.mark.parametrize(
    ("text", "counts", "told"),
    [
        ("", {}, ""),
        (" 10.0.0.1:5 , localhost:0,", {"10.0.0.1": 5, "127.0.0.1": 0}, "10.0.0.1:5,127.0.0.1:0"),
        ("::ffff:10.0.0.2:7", {"10.0.0.2": 7}, "10.0.0.2:7"),
        ("[2001:DB8:0::1]:3", {"2001:db8::1": 3}, "2001:db8::1:3"),
    ],
)
def test_addresses_are_known_however_they_are_written(text, counts, told):
    found = read_counts(text)
    assert (found.counts, str(found)) == (counts, told)
    assert read_counts(told) == found
    config = broker_config({KEY: text})
    assert config.text(MAX_CONNECTIONS_PER_IP_OVERRIDES) == told
    assert limits_of(config, None).connections_of_ip == counts


@pytest.mark.parametrize(
    "text", ["10.0.0.1", "10.0.0.1:", "10.0.0.1:-1", "10.0.0.1:x", ":4", "h:4"]
)
def test_what_names_no_address_and_number_is_refused(text):
    """Nobody is to think that an address is kept out when it is not."""
    with pytest.raises(InvalidConfig, match=KEY.replace(".", r"\.")):
        broker_config({KEY: text})
