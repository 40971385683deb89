"""When certificates expire, read from their DER as `cryptography` reads it."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from echoless.broker.authentication.certificate_fields import expires_s
from echoless.broker.authentication.tls import chain_expires_s
from tests.support.certificates import Authority


def certificate(not_after: datetime) -> bytes:
    """A self-signed certificate, as DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    valid = builder.not_valid_before(not_after - timedelta(days=1)).not_valid_after(not_after)
    return valid.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize("year", [1970, 1999, 2026, 2049, 2050, 2068, 9999])
def test_the_end_of_the_validity_is_read_in_both_encodings(year: int) -> None:
    """Two digits of the year up to 2049, four from 2050 on (RFC 5280)."""
    end = datetime(year, 12, 30, 23, 59, 58, tzinfo=UTC)
    assert expires_s(certificate(end)) == end.timestamp()


def test_a_certificate_that_is_cut_off_anywhere_is_refused() -> None:
    """With a message, wherever it ends."""
    whole = certificate(datetime(2030, 1, 1, tzinfo=UTC))
    for length in range(len(whole)):
        with pytest.raises(ValueError, match="the certificate"):
            expires_s(whole[:length])


def test_a_chain_expires_with_its_first_certificate(tmp_path: Path) -> None:
    """Clients refuse the chain from then on."""
    path = Authority(tmp_path).issue("broker", "localhost")
    texts = [certificate(datetime(year, 1, 1, tzinfo=UTC)) for year in (2031, 2030)]
    path.write_text("".join(map(ssl.DER_cert_to_PEM_cert, texts)))
    assert chain_expires_s(str(path)) == datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    path.write_text("no certificate")
    assert chain_expires_s(str(path)) is None
    assert chain_expires_s(str(tmp_path / "gone")) is None
