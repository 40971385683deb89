"""Names about security: what they take, and what does not fit together."""

from __future__ import annotations

import pytest

from echoless.broker.config.loading import ConfigError, load_config
from echoless.broker.config.security import SecurityProtocol

NATIVE_SASL = "listener_security_protocol_map=NATIVE:SASL_PLAINTEXT"
ZOOKEEPER = "coordinator=zookeeper://127.0.0.1:1"
KEY = "ssl_keystore_location=k.pem"
OAUTH = "sasl_enabled_mechanisms=OAUTHBEARER"
KEYS = "sasl_oauthbearer_jwks_endpoint_url=https://issuer.example/keys"


def loaded(*names: str):
    return load_config([part for name in names for part in ("--set", name)], {})


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["listener_security_protocol_map=PLAINTEXT:TLS"], "listener_security_protocol_map: takes"),
        (["listener_security_protocol_map=OTHER:SSL"], "listener_security_protocol_map: takes"),
        (["listener_security_protocol_map=NATIVE:SSL,NATIVE:SSL"], "map: takes LISTENER:PROTOCOL"),
        ([KEY, "listener_security_protocol_map=EXTERNAL:SSL"], "EXTERNAL is not listened on"),
        (
            [KEY, "listener_security_protocol_map=ADMIN:SASL_SSL"],
            "takes PLAINTEXT or SSL for ADMIN",
        ),
        (
            ["listener_security_protocol_map=PLAINTEXT:SSL"],
            "^ssl_keystore_location: takes the path",
        ),
        (
            [KEY, "listener_security_protocol_map=NATIVE:SSL", "ssl_client_auth=required"],
            "^ssl_truststore_location: takes the path",
        ),
        (["sasl_enabled_mechanisms=GSSAPI"], "sasl_enabled_mechanisms: takes some of PLAIN, SCRAM"),
        (["sasl_enabled_mechanisms="], "sasl_enabled_mechanisms: takes some of PLAIN, SCRAM"),
        (
            ["native_listen=0.0.0.0:0", "sasl_enabled_mechanisms=PLAIN", NATIVE_SASL],
            "PLAIN sends passwords as they are, and NATIVE on 0.0.0.0:0 is SASL_PLAINTEXT",
        ),
        ([ZOOKEEPER, NATIVE_SASL], "^sasl_inter_broker_username: it is needed"),
        (
            [ZOOKEEPER, NATIVE_SASL, "sasl_inter_broker_username=b"],
            "^sasl_inter_broker_password: it is needed",
        ),
        (
            [ZOOKEEPER, NATIVE_SASL, "sasl_enabled_mechanisms=SCRAM-SHA-512"],
            "^sasl_mechanism_inter_broker_protocol: takes one of sasl_enabled",
        ),
        ([OAUTH, NATIVE_SASL], "^sasl_oauthbearer_jwks_endpoint_url: takes the URL of the keys"),
        ([OAUTH, NATIVE_SASL, KEYS], "^sasl_oauthbearer_expected_issuer: it is needed"),
        (
            [OAUTH, NATIVE_SASL, KEYS, "sasl_oauthbearer_expected_issuer=i"],
            "^sasl_oauthbearer_expected_audience: it is needed",
        ),
        (
            [OAUTH, NATIVE_SASL, KEYS, "oauthbearer_unsecured=true"],
            "^oauthbearer_unsecured: takes false beside sasl_oauthbearer_jwks_endpoint_url",
        ),
        (
            [OAUTH, NATIVE_SASL, "oauthbearer_unsecured=true", "native_listen=0.0.0.0:0"],
            "OAUTHBEARER sends tokens as they are, and NATIVE on 0.0.0.0:0 is SASL_PLAINTEXT",
        ),
        *(
            ([f"sasl_oauthbearer_jwks_endpoint_url={url}"], "url: takes https://HOST")
            for url in ("http://10.0.0.1/keys", "ftp://h/k", "https:///k", "file://h/k", "k", "[")
        ),
        (["sasl_oauthbearer_algorithms=RS256,none"], "sasl_oauthbearer_algorithms: takes some of"),
        (["sasl_oauthbearer_algorithms=HS256"], "sasl_oauthbearer_algorithms: takes some of"),
        (["sasl_oauthbearer_sub_claim_name="], "sasl_oauthbearer_sub_claim_name: takes a name"),
        (
            ["sasl_mechanism_inter_broker_protocol=OAUTHBEARER"],
            "sasl_mechanism_inter_broker_protocol: takes PLAIN or SCRAM",
        ),
        (["ssl_enabled_protocols=TLSv1.1"], "ssl_enabled_protocols: takes some of TLSv1.2"),
        (["ssl_client_auth=maybe"], "ssl_client_auth: takes none or requested or required"),
        (["ssl_principal_mapping_rules=RULE:x"], "ssl_principal_mapping_rules: takes DEFAULT, or"),
    ],
)
def test_what_does_not_fit_is_one_line_that_names_the_option(names, said) -> None:
    """`serve` prints it and exits with 2."""
    with pytest.raises(ConfigError, match=said) as caught:
        loaded(*names)
    assert "\n" not in str(caught.value)


def test_listeners_that_are_not_named_speak_plaintext() -> None:
    """In any case, and with blanks between."""
    config = loaded(KEY, "listener_security_protocol_map=plaintext:ssl , Admin:SSL")
    assert config.security_protocol("PLAINTEXT") is SecurityProtocol.SSL
    assert config.security_protocol("ADMIN") is SecurityProtocol.SSL
    assert config.security_protocol("NATIVE") is SecurityProtocol.PLAINTEXT


def test_keys_may_come_without_tls_from_this_machine() -> None:
    """As a password may be sent to it."""
    url = "http://127.0.0.1:8080/keys?a=b"
    assert (
        loaded(f"sasl_oauthbearer_jwks_endpoint_url={url}").sasl_oauthbearer_jwks_endpoint_url
        == url
    )


def test_the_password_is_shown_to_no_one() -> None:
    """Neither in the configuration's text, nor in an error."""
    config = loaded("ssl_keystore_password=hunter2", "sasl_inter_broker_password=hunter2")
    assert config.ssl_keystore_password == config.sasl_inter_broker_password == "hunter2"
    assert "hunter2" not in repr(config)
