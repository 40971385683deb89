"""The subject of a certificate as Java writes it (RFC 2253), so that principals and ACLs are the same text.

`ssl` gives the subject's names translated and without their types, so it is read from the certificate's
DER here. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

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
_EXPLICIT_VERSION: Final = 0xA0
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_LONG_LENGTH: Final = 0x80
_OID_MORE: Final = 0x80


class _Value(NamedTuple):
    """One DER value: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    encoded: bytes


def subject_name(certificate: bytes) -> str:
    """The subject of a DER certificate: most specific first, without spaces. Raises `ValueError`."""
    try:
        to_be_signed = next(_values(next(_values(certificate)).content))
        fields = list(_values(to_be_signed.content))
        has_version = fields[0].tag == _EXPLICIT_VERSION
        subject = fields[4 + has_version]  # after serial number, signature, issuer and validity
    except (StopIteration, IndexError):
        raise ValueError("the certificate has no subject") from None
    names = ["+".join(map(_attribute, _values(rdn.content))) for rdn in _values(subject.content)]
    return ",".join(reversed(names))


def _values(data: bytes) -> Iterator[_Value]:
    position = 0
    while position < len(data):
        begin, position = position, position + 2
        tag, length = data[begin], int.from_bytes(data[begin + 1 : begin + 2])
        if length >= _LONG_LENGTH:
            count = length - _LONG_LENGTH
            length = int.from_bytes(data[position : position + count])
            position += count
        end = position + length
        if end > len(data):
            raise ValueError("the certificate is cut off")
        yield _Value(tag, data[position:end], data[begin:end])
        position = end


def _attribute(attribute: _Value) -> str:
    kind, value = _values(attribute.content)
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
