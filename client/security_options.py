"""Security options by the names of librdkafka and of Java's clients, as `Security`.

What cannot be done is refused with what to write instead; a name that no one would act on is not ignored,
since it may be the one that was to keep strangers out. Values are never part of a message.

| librdkafka | Java | |
|---|---|---|
| `security.protocol` | the same | PLAINTEXT (default), SSL, SASL_PLAINTEXT, SASL_SSL |
| `sasl.mechanism`, `sasl.mechanisms` | `sasl.mechanism` | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER |
| those of a log-in, which are read in `client/login_options.py` | | |
| `ssl.ca.location` | `ssl.truststore.location` | PEM; without it the system's authorities |
| `ssl.ca.pem` | `ssl.truststore.certificates` | the PEM itself |
| `ssl.certificate.location` | `ssl.keystore.location` | PEM; with the key, or beside `ssl.key.location` |
| `ssl.certificate.pem`, `ssl.key.pem` | `ssl.keystore.certificate.chain`, `ssl.keystore.key` | |
| `ssl.key.password` | the same | |
| `ssl.endpoint.identification.algorithm` | the same | `https` (default); `none` or empty: the name is not compared |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from echoless.client.login_options import LOGIN_NAMES, SecurityOptionError, java_login, login_in
from echoless.client.security import Security, Tls

__all__ = ["SecurityOptionError", "is_about_security", "java_options", "security_of"]

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FIELDS: Final = {
    "ssl.ca.location": "ca_location",
    "ssl.truststore.location": "ca_location",
    "ssl.ca.pem": "ca_pem",
    "ssl.truststore.certificates": "ca_pem",
    "ssl.certificate.location": "certificate_location",
    "ssl.keystore.location": "certificate_location",
    "ssl.key.location": "key_location",
    "ssl.certificate.pem": "certificate_pem",
    "ssl.keystore.certificate.chain": "certificate_pem",
    "ssl.key.pem": "key_pem",
    "ssl.keystore.key": "key_pem",
    "ssl.key.password": "key_password",
}
"""Names, and the field of `Tls` that each sets."""
_HOST_NAME: Final = "ssl.endpoint.identification.algorithm"
_STORE_TYPES: Final = frozenset({"ssl.truststore.type", "ssl.keystore.type"})
_KNOWN: Final = {"security.protocol", _HOST_NAME, *_FIELDS, *_STORE_TYPES, *LOGIN_NAMES}
_PEM: Final = (
    "only PEM is read; write one with `openssl pkcs12 -in STORE.p12 -out STORE.pem -nodes` "
    "(after `keytool -importkeystore -destkeystore STORE.p12 -deststoretype PKCS12`, if it is JKS)"
)
_REMEDIES: Final = {
    "ssl.truststore.password": f"{_PEM}; a list of authorities in PEM has no password",
    "ssl.keystore.password": f"{_PEM}; the password of its key is ssl.key.password",
    "enable.ssl.certificate.verification": (
        "certificates are always checked; name the authority by ssl.ca.location, and use "
        f"{_HOST_NAME}=none if only the host name differs"
    ),
}


def security_of(options: Mapping[str, str]) -> Security:
    """The security that options by the names of librdkafka or of Java's clients describe.

    Names that are not about security are ignored. Raises `SecurityOptionError` for one that is not known, not served,
    or has no effect.
    """
    given = {name: value for name, value in options.items() if is_about_security(name)}
    for name in given:
        if name not in _KNOWN:
            raise _refused(name, _REMEDIES.get(name, "leave it out"))
    protocol = given.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise SecurityOptionError(f"security.protocol: takes one of {', '.join(_PROTOCOLS)}")
    has_tls, has_login = protocol.endswith("SSL"), protocol.startswith("SASL")
    for name in given:
        if (name.startswith("ssl.") and not has_tls) or (name in LOGIN_NAMES and not has_login):
            wanted = "SSL or SASL_SSL" if name.startswith("ssl.") else "SASL_SSL"
            raise SecurityOptionError(
                f"{name} has no effect with security.protocol={protocol}; did you mean {wanted}?"
            )
    return Security(
        tls=_tls(given) if has_tls else None, login=login_in(given) if has_login else None
    )


def java_options(security: Security) -> dict[str, str]:
    """The same by the names of Java's clients, for Spark's own connector."""
    options = {"security.protocol": security.protocol}
    login, tls = security.login, security.tls
    if login is not None:
        options |= java_login(login)
    if tls is not None:
        options |= _java_tls(tls)
    return options


def _java_tls(tls: Tls) -> dict[str, str]:
    if tls.key_location:
        raise SecurityOptionError(
            "ssl.key.location: Java's client wants key and certificate in one file; "
            "append the key to the file of ssl.certificate.location and leave this out"
        )
    texts = {
        "ssl.truststore.location": tls.ca_location,
        "ssl.truststore.certificates": tls.ca_pem,
        "ssl.keystore.location": tls.certificate_location,
        "ssl.keystore.certificate.chain": tls.certificate_pem,
        "ssl.keystore.key": tls.key_pem,
        "ssl.key.password": tls.key_password,
    }
    options = {name: text for name, text in texts.items() if text}
    for store in ("truststore", "keystore"):
        if any(name.startswith(f"ssl.{store}.") for name in options):
            options[f"ssl.{store}.type"] = "PEM"
    if not tls.checks_host_name:
        options[_HOST_NAME] = ""
    return options


def is_about_security(name: str) -> bool:
    """Whether it is read, or refused, by `security_of`."""
    return name.startswith(("ssl.", "sasl.", "security.", "enable.ssl.", "https."))


def _refused(name: str, remedy: str) -> SecurityOptionError:
    return SecurityOptionError(f"{name} is not served: {remedy}")


def _tls(given: Mapping[str, str]) -> Tls:
    for name in _STORE_TYPES & given.keys():
        if given[name].upper() != "PEM":
            raise _refused(f"{name} other than PEM", _PEM)
    fields: dict[str, str] = {}
    names: dict[str, str] = {}
    for name, field in _FIELDS.items():
        value = given.get(name)
        if value is None:
            continue
        if field in fields and fields[field] != value:
            raise SecurityOptionError(f"{names[field]} and {name} differ; give one of them")
        if name.endswith(".location") and value.endswith((".jks", ".p12", ".pfx")):
            raise _refused(f"{name} of a JKS or PKCS12 store", _PEM)
        fields[field], names[field] = value, name
    algorithm = given.get(_HOST_NAME, "https").strip().lower()
    if algorithm not in {"https", "none", ""}:
        raise SecurityOptionError(f"{_HOST_NAME}: takes https, or none")
    _check_pairs(fields)
    return Tls(**fields, checks_host_name=algorithm == "https")


def _check_pairs(fields: Mapping[str, str]) -> None:
    for pair in (("ca_location", "ca_pem"), ("certificate_location", "certificate_pem")):
        if all(fields.get(one) for one in pair):
            raise SecurityOptionError(
                f"{_names_of(pair[0])} and {_names_of(pair[1])}: give one of them"
            )
    if bool(fields.get("key_pem")) != bool(fields.get("certificate_pem")):
        raise SecurityOptionError("ssl.key.pem and ssl.certificate.pem are given together")
    if fields.get("key_location") and not fields.get("certificate_location"):
        raise SecurityOptionError("ssl.key.location needs ssl.certificate.location")


def _names_of(field: str) -> str:
    return " or ".join(name for name, found in _FIELDS.items() if found == field)
