"""The subject of a certificate, as Java writes it: the expected texts are what Java 17 printed."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from echoless.broker.authentication.distinguished_name import subject_name

C, O, OU, CN = (  # noqa: E741 - as they are called
    NameOID.COUNTRY_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COMMON_NAME,
)


def certificate(*subject: list[tuple[x509.ObjectIdentifier, str]]) -> bytes:
    """A certificate with this subject, one list for each relative name, the least specific first."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(oid, text) for oid, text in part])
            for part in subject
        ]
    )
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ([[(C, "DE")], [(O, "Acme, Inc")], [(CN, "kafka-1")]], r"CN=kafka-1,O=Acme\, Inc,C=DE"),
        (
            [[(NameOID.EMAIL_ADDRESS, "a@b.c")], [(CN, "kafka-1")]],
            "CN=kafka-1,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            [[(CN, " lead and trail  ")], [(O, '#hash;<x>"y\\z')]],
            r"O=\#hash\;\<x\>\"y\\z,CN=\ lead and trail\ \ ",
        ),
        (
            [
                [(NameOID.DOMAIN_COMPONENT, "org")],
                [(NameOID.DOMAIN_COMPONENT, "example")],
                [(CN, "multi"), (NameOID.USER_ID, "u1")],
                [(NameOID.SERIAL_NUMBER, "5")],
            ],
            "2.5.4.5=#130135,CN=multi+UID=u1,DC=example,DC=org",
        ),
        (
            [
                [(CN, "Jürgen Größe")],
                [(NameOID.STATE_OR_PROVINCE_NAME, "Bayern")],
                [(NameOID.LOCALITY_NAME, "München")],
                [(NameOID.STREET_ADDRESS, "Weg 1")],
            ],
            "STREET=Weg 1,L=München,ST=Bayern,CN=Jürgen Größe",
        ),
        ([[(CN, "tab\tx")], [(NameOID.TITLE, "Dr")]], "2.5.4.12=#0c024472,CN=tab\tx"),
        ([[(OU, "a" * 60)] for _ in range(9)], ",".join(["OU=" + "a" * 60] * 9)),
        ([], ""),
    ],
)
def test_a_subject_reads_as_in_java(subject, expected) -> None:
    """Most specific first, escaped; names that RFC 2253 lacks as OID and hex."""
    assert subject_name(certificate(*subject)) == expected


def test_a_certificate_that_is_cut_off_raises() -> None:
    """At every byte, and never anything but `ValueError`."""
    whole = certificate([(CN, "kafka-1")])
    for size in range(len(whole)):
        with pytest.raises(ValueError, match=r"cut off|no subject"):
            subject_name(whole[:size])
