"""The rules that map the name in a certificate to a principal, as Kafka's `SslPrincipalMapper` applies them."""

from __future__ import annotations

import pytest

from echoless.broker.config.principal_mapping import DEFAULT_MAPPING, parse_mapping

DN = "CN=Kafka-1,OU=Ops,O=Acme\\, Inc"


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", DN, DN),
        (r"RULE:^CN=([^,]+),.*$/$1/L,DEFAULT", "CN=Kafka-1,OU=x", "kafka-1"),  # vector 31
        (r"RULE:^CN=([^,]+),.*$/$1/U", DN, "KAFKA-1"),
        (r"RULE:^CN=([^,]+),.*$/$1/", DN, "Kafka-1"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L, DEFAULT", DN, "kafka-1@ops"),
        (r"RULE:^CN=none$/x/,RULE:^CN=(\w+).*$/$1/,DEFAULT", DN, "Kafka"),
        (r"RULE:CN=Kafka/x/,DEFAULT", DN, DN),  # the pattern has to match all of it
        (r"RULE:^CN=(\w+).*$/$2-$1/", DN, "$2-Kafka"),
        (r"RULE:^CN=(\w+).*$/$12/", DN, "Kafka2"),
        (r"RULE:^CN=(\w+).*$/\$1/", DN, "$1"),
        (r"RULE:^cn=.*$/x/", DN, None),
        (r"RULE:^CN=a\/b$/slash/", "CN=a/b", "slash"),
    ],
)
def test_the_first_rule_that_matches_decides(rules, name, expected) -> None:
    """None if none does."""
    assert parse_mapping(rules).apply(name) == expected


@pytest.mark.parametrize(
    "rules", ["", "default", "RULE:a", "RULE:a/b", "RULE:(/b/", "RULE:a/b/X", "DEFAULT RULE:a/b/"]
)
def test_what_is_no_rule_is_refused(rules) -> None:
    """With `ValueError`, which ends `serve`."""
    with pytest.raises(ValueError, match=r"no rule|missing|unterminated"):
        parse_mapping(rules)


def test_the_mapping_of_a_start_is_that_of_its_text() -> None:
    """It is made without reading the text."""
    assert parse_mapping("DEFAULT") == DEFAULT_MAPPING
