"""The options of the authorizer, and what they must be together."""

import pytest

from ottla.config.authorization import (
    AUTHORIZER_CLASS_NAME,
    STANDARD_AUTHORIZER,
    SUPER_USERS,
    has_authorizer,
)
from ottla.config.files import broker_config
from ottla.config.option import InvalidConfig
from ottla.ids import Principal

ON = {"authorizer.class.name": STANDARD_AUTHORIZER}


def test_there_is_none_unless_it_is_named():
    assert not has_authorizer(broker_config())
    assert not has_authorizer(broker_config({"authorizer.class.name": ""}))
    assert has_authorizer(broker_config(ON))


def test_super_users_are_separated_by_semicolons_and_keep_their_commas():
    config = broker_config(ON, {"super.users": "User:admin; User:CN=a,O=b ;"})
    wanted = (Principal("User", "admin"), Principal("User", "CN=a,O=b"))
    assert config[SUPER_USERS].listed == wanted
    assert config.text(SUPER_USERS) == "User:admin;User:CN=a,O=b"


@pytest.mark.parametrize("text", ["admin", "User:", ":admin", "User:a;b"])
def test_a_super_user_that_is_none_is_refused(text):
    with pytest.raises(InvalidConfig, match="principalType:principalName"):
        broker_config(ON, {"super.users": text})


@pytest.mark.parametrize("key", ["super.users", "allow.everyone.if.no.acl.found"])
def test_nobody_relies_on_an_authorizer_that_is_not_there(key):
    value = "true" if key.startswith("allow") else "User:a"
    with pytest.raises(InvalidConfig, match=STANDARD_AUTHORIZER):
        broker_config({key: value})


@pytest.mark.parametrize("name", ["com.example.Mine", "kafka.security.authorizer.AclAuthorizer"])
def test_another_authorizer_is_refused_with_the_name_of_ours(name):
    with pytest.raises(InvalidConfig, match=STANDARD_AUTHORIZER):
        broker_config({AUTHORIZER_CLASS_NAME.key: name})
