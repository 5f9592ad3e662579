import pytest

from ottla.cli.failure import Failure
from ottla.cli.first_users import read_first_user
from ottla.security.credentials import FirstUser


def test_kafkas_words_are_understood():
    assert read_first_user("SCRAM-SHA-256=[name=alice,password=a=b]") == FirstUser(
        "alice", "SCRAM-SHA-256", "a=b"
    )
    assert read_first_user("SCRAM-SHA-512=[name=a,iterations=8192,password=p]").iterations == 8192


def test_a_password_may_lie_in_a_file(tmp_path):
    path = tmp_path / "password"
    path.write_text("secret\n")
    assert read_first_user(f"SCRAM-SHA-256=[name=a,password-file={path}]").password == "secret"
    with pytest.raises(Failure, match="cannot be understood"):
        read_first_user(f"SCRAM-SHA-256=[name=a,password-file={path}-not]")


@pytest.mark.parametrize(
    "text",
    [
        "hunter2",
        "SCRAM-SHA-1=[name=a,password=hunter2]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[password=hunter2]",
        "SCRAM-SHA-256=[name=a,password=hunter2,salt=x]",
        "SCRAM-SHA-256=[name=a,password=hunter2,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=hunter2,iterations=99999]",
        "SCRAM-SHA-256=[name=a,password=hunter2,password-file=/x]",
    ],
)
def test_what_is_not_is_refused_without_showing_the_password(text):
    with pytest.raises(Failure) as failure:
        read_first_user(text)
    assert "hunter2" not in str(failure.value)


def test_a_user_is_printed_without_his_password():
    assert "hunter2" not in repr(FirstUser("a", "SCRAM-SHA-256", "hunter2"))
