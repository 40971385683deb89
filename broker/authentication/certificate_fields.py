"""The fields of an X.509 certificate that a broker reads itself, since `ssl` gives them changed or not at all. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from echoless.broker.authentication.der import DerValue, der_values

_EXPLICIT_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_CENTURY_FROM: Final = 50
"""Two digits of a year from 50 on are of the last century (RFC 5280)."""


def subject_of(certificate: bytes) -> DerValue:
    """The subject, undecoded, of a DER certificate. Raises `ValueError`."""
    return _field(certificate, 4, "subject")


def expires_s(certificate: bytes) -> float:
    """The end of a DER certificate's validity, in seconds since 1970. Raises `ValueError`."""
    try:
        _, end = der_values(_field(certificate, 3, "validity").content)
        text = end.content.decode("ascii")
    except ValueError as error:
        raise ValueError("the certificate has no end of its validity") from error
    if end.tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _CENTURY_FROM else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _field(certificate: bytes, index: int, name: str) -> DerValue:
    """The field at `index` behind the version: serial number, signature, issuer, validity, subject."""
    try:
        to_be_signed = next(der_values(next(der_values(certificate)).content))
        fields = list(der_values(to_be_signed.content))
        return fields[index + (fields[0].tag == _EXPLICIT_VERSION)]
    except (StopIteration, IndexError):
        raise ValueError(f"the certificate has no {name}") from None
