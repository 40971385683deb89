"""The subject of a certificate as Java writes it (RFC 2253), so that principals and ACLs are the same text.

`ssl` gives the subject's names translated and without their types, so it is read from the certificate's
DER here. Pure.
"""

from __future__ import annotations

from typing import Final

from echoless.broker.authentication.certificate_fields import subject_of
from echoless.broker.authentication.der import DerValue, der_values

_SHORT_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The only names that RFC 2253 has; all others are written as their OID and the hex of their value."""
_ENCODINGS: Final = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
"""By the tag of a string type."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_OID_MORE: Final = 0x80


def subject_name(certificate: bytes) -> str:
    """The subject of a DER certificate: most specific first, without spaces. Raises `ValueError`."""
    subject = subject_of(certificate)
    names = [
        "+".join(map(_attribute, der_values(rdn.content))) for rdn in der_values(subject.content)
    ]
    return ",".join(reversed(names))


def _attribute(attribute: DerValue) -> str:
    kind, value = der_values(attribute.content)
    oid = _oid(kind.content)
    name, encoding = _SHORT_NAMES.get(oid), _ENCODINGS.get(value.tag)
    if name is None or encoding is None:
        return f"{name or oid}=#{value.encoded.hex()}"
    return f"{name}={_escaped(value.content.decode(encoding))}"


def _oid(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & ~_OID_MORE
        if not byte & _OID_MORE:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    """Escapes what RFC 2253 reserves, and spaces at both ends."""
    plain = "".join(f"\\{one}" if one in _ESCAPED else one for one in text)
    plain = plain.replace("\0", "\\00")
    middle = plain.lstrip(" ")
    leading = len(plain) - len(middle)
    stripped = middle.rstrip(" ")
    return "\\ " * leading + stripped + "\\ " * (len(middle) - len(stripped))
