"""The names about the authorizer: what they take, and what has no effect without one."""

from __future__ import annotations

import pytest

from echoless.broker.config.description import describe_broker
from echoless.broker.config.dynamic import DynamicConfig
from echoless.broker.config.loading import ConfigError, load_config
from echoless.broker.config.names import Authorizer, Config, IdempotentWriteAcl

ACL = ("--set", "authorizer=acl")


def test_defaults_let_everyone_do_everything() -> None:
    """No authorizer, no super users."""
    config = load_config([], {})
    assert config.authorizer is Authorizer.NONE
    assert config.super_users == ()
    assert not config.allow_everyone_if_no_acl_found
    assert config.idempotent_write_acl is IdempotentWriteAcl.ANY_TOPIC


def test_super_users_are_separated_by_semicolons() -> None:
    """Distinguished names have commas; the value is shown as it is written."""
    users = "User:admin; User:CN=kafka-1,OU=x;"
    config = load_config([*ACL, "--set", f"super_users={users}"], {})
    assert config.super_users == ("User:admin", "User:CN=kafka-1,OU=x")
    shown = {entry.name: entry.value for entry in describe_broker(DynamicConfig(config), {})}
    assert shown["super.users"] == "User:admin;User:CN=kafka-1,OU=x"
    again = load_config([*ACL, "--set", f"super_users={shown['super.users']}"], {})
    assert again.super_users == config.super_users


@pytest.mark.parametrize("text", ["alice", "User:", ":alice", "User:a;bob"])
def test_a_super_user_is_a_principal(text: str) -> None:
    """A name without its type would be no one."""
    with pytest.raises(ConfigError, match="super_users: takes TYPE:NAME"):
        load_config([*ACL, "--set", f"super_users={text}"], {})


@pytest.mark.parametrize(
    "setting",
    [
        "super_users=User:admin",
        "allow_everyone_if_no_acl_found=true",
        "idempotent_write_acl=cluster",
    ],
)
def test_settings_of_an_authorizer_that_is_not_there_are_refused(setting: str) -> None:
    """The operator believes that ACLs are in force; the line says that they are not."""
    with pytest.raises(ConfigError, match=r"^\w+: takes effect with authorizer=acl only"):
        load_config(["--set", setting], {})
    assert load_config([*ACL, "--set", setting], {}) != Config()


def test_an_authorizer_is_none_or_acl() -> None:
    """The line names both."""
    with pytest.raises(ConfigError, match="authorizer: takes none or acl"):
        load_config(["--set", "authorizer=kafka"], {})
