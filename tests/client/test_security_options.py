"""Security options by the names of librdkafka and Java: what is read, what is refused, and what is never shown."""

from __future__ import annotations

import pickle

import pytest

from echoless.client.security import NO_SECURITY, Login, Security, Tls
from echoless.client.security_options import SecurityOptionError, java_options, security_of
from echoless.protocol.sasl.mechanism import Mechanism

SECRET = 'hunter2-"quoted"-back\\slash'
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="hunter2-\\"quoted\\"-back\\\\slash";'
)
ALICE = Login(mechanism=Mechanism.SCRAM_SHA_256, user="alice", password=SECRET)
SASL_SSL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}


def test_without_options_nothing_is_secured() -> None:
    """Names that are not about security are left alone."""
    assert security_of({"client.id": "x", "acks": "all"}) == NO_SECURITY
    assert security_of({"security.protocol": "PLAINTEXT"}) == NO_SECURITY


def test_both_families_of_names_say_the_same() -> None:
    """librdkafka's and Java's options for one connection give one `Security`."""
    librdkafka = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": SECRET,
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "alice.pem",
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "none",
    }
    java = {
        **SASL_SSL,
        "sasl.jaas.config": JAAS,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "alice.pem",
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "",
    }
    expected = Security(
        login=ALICE,
        tls=Tls(
            ca_location="ca.pem",
            certificate_location="alice.pem",
            key_password="k",
            checks_host_name=False,
        ),
    )
    assert security_of(librdkafka) == security_of(java) == expected
    assert security_of(java_options(expected)) == expected
    assert pickle.loads(pickle.dumps(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        JAAS,
        JAAS.replace("org.apache", "kafkashaded.org.apache"),
        "  " + JAAS.replace(" password", "\n  password") + "\n",
    ],
)
def test_jaas_is_read_as_java_reads_it(text: str) -> None:
    """Shaded modules, lines and escapes included."""
    found = security_of({**SASL_SSL, "sasl.jaas.config": text})
    assert found.login == ALICE


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"security.protocol": "TLS"}, "takes one of PLAINTEXT, SSL"),
        ({"sasl.password": SECRET}, "sasl.password has no effect .* did you mean SASL_SSL"),
        ({"ssl.ca.location": "x"}, "ssl.ca.location has no effect .* did you mean SSL or SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is needed"),
        ({**SASL_SSL, "sasl.mechanism": "GSSAPI"}, "takes one of PLAIN, .* not 'GSSAPI'"),
        ({**SASL_SSL, "sasl.mechanisms": "PLAIN"}, "sasl.mechanism and sasl.mechanisms differ"),
        (SASL_SSL, "sasl.username is needed"),
        ({**SASL_SSL, "sasl.username": "a"}, "sasl.password is needed"),
        (
            {**SASL_SSL, "sasl.jaas.config": JAAS, "sasl.password": SECRET},
            "not both",
        ),
        ({**SASL_SSL, "sasl.jaas.config": JAAS.rstrip(";")}, "sasl.jaas.config: takes"),
        ({**SASL_SSL, "sasl.jaas.config": JAAS.replace("Scram", "Krb5")}, "Krb5LoginModule"),
        (
            {**SASL_SSL, "sasl.jaas.config": JAAS.replace(";", ' tokenauth="true";')},
            "tokenauth is not served",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "openssl pkcs12"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "x.jks"}, "openssl pkcs12"),
        ({"security.protocol": "SSL", "ssl.truststore.password": SECRET}, "only PEM is read"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "x"}, "not served: leave it out"),
        (
            {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"},
            "certificates are always checked",
        ),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "no"},
            "takes https, or none",
        ),
        ({"security.protocol": "SSL", "ssl.key.location": "k"}, "needs ssl.certificate.location"),
        ({"security.protocol": "SSL", "ssl.key.pem": SECRET}, "given together"),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "a", "ssl.truststore.location": "b"},
            "ssl.ca.location and ssl.truststore.location differ",
        ),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "a", "ssl.ca.pem": "b"},
            "give one of them",
        ),
    ],
)
def test_what_is_not_served_is_refused_with_the_remedy(options: dict[str, str], words: str) -> None:
    """No option is ignored in silence; no message has a value that may be secret."""
    with pytest.raises(SecurityOptionError, match=words) as caught:
        security_of(options)
    assert "hunter2" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    """Neither by `repr` nor by what contains it."""
    secured = Security(
        login=ALICE, tls=Tls(key_pem=SECRET, certificate_pem="c", key_password=SECRET)
    )
    assert "hunter2" not in f"{secured} {secured!r} {[secured]}"


def test_java_wants_key_and_certificate_in_one_file() -> None:
    """Spark's own connector cannot take two files; the message says what to do."""
    two = Security(tls=Tls(certificate_location="c", key_location="k"))
    with pytest.raises(SecurityOptionError, match=r"ssl\.key\.location: .* append the key"):
        java_options(two)
