"""Security options by the names of librdkafka and of Java's clients, as `Security`.

What cannot be done is refused with what to write instead; a name that no one would act on is not ignored,
since it may be the one that was to keep strangers out. Values are never part of a message.

| librdkafka | Java | |
|---|---|---|
| `security.protocol` | the same | PLAINTEXT (default), SSL, SASL_PLAINTEXT, SASL_SSL |
| `sasl.mechanism`, `sasl.mechanisms` | `sasl.mechanism` | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 |
| `sasl.username`, `sasl.password` | `sasl.jaas.config` | |
| `ssl.ca.location` | `ssl.truststore.location` | PEM; without it the system's authorities |
| `ssl.ca.pem` | `ssl.truststore.certificates` | the PEM itself |
| `ssl.certificate.location` | `ssl.keystore.location` | PEM; with the key, or beside `ssl.key.location` |
| `ssl.certificate.pem`, `ssl.key.pem` | `ssl.keystore.certificate.chain`, `ssl.keystore.key` | |
| `ssl.key.password` | the same | |
| `ssl.endpoint.identification.algorithm` | the same | `https` (default); `none` or empty: the name is not compared |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from client.security import Login, Security, Tls
from protocol.sasl.mechanism import PASSWORD_MECHANISMS, Mechanism


class SecurityOptionError(ValueError):
    """An option that is wrong, missing or not served; the message names it and the remedy."""


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
_LOGIN: Final = frozenset(
    {"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.jaas.config"}
)
_KNOWN: Final = {"security.protocol", _HOST_NAME, *_FIELDS, *_STORE_TYPES, *_LOGIN}
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
    """Raises `SecurityOptionError`. Names that are not about security are left alone."""
    given = {name: value for name, value in options.items() if is_about_security(name)}
    for name in given:
        if name not in _KNOWN:
            raise _refused(name, _REMEDIES.get(name, "leave it out"))
    protocol = given.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise SecurityOptionError(f"security.protocol: takes one of {', '.join(_PROTOCOLS)}")
    has_tls, has_login = protocol.endswith("SSL"), protocol.startswith("SASL")
    for name in given:
        if (name.startswith("ssl.") and not has_tls) or (name in _LOGIN and not has_login):
            wanted = "SSL or SASL_SSL" if name.startswith("ssl.") else "SASL_SSL"
            raise SecurityOptionError(
                f"{name} has no effect with security.protocol={protocol}; did you mean {wanted}?"
            )
    return Security(
        tls=_tls(given) if has_tls else None, login=_login(given) if has_login else None
    )


def java_options(security: Security) -> dict[str, str]:
    """The same by the names of Java's clients, for Spark's own connector."""
    options = {"security.protocol": security.protocol}
    login, tls = security.login, security.tls
    if login is not None:
        module = "plain.Plain" if login.mechanism is Mechanism.PLAIN else "scram.Scram"
        options["sasl.mechanism"] = str(login.mechanism)
        options["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required "
            f"username={_quoted(login.user)} password={_quoted(login.password)};"
        )
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


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def is_about_security(name: str) -> bool:
    """Whether it is read, or refused, by `security_of`."""
    return name.startswith(("ssl.", "sasl.", "security.", "enable.ssl."))


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


def _login(given: Mapping[str, str]) -> Login:
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms"))
    known = ", ".join(PASSWORD_MECHANISMS)
    if mechanism is None:
        raise SecurityOptionError(f"sasl.mechanism is needed: one of {known}")
    if given.get("sasl.mechanisms", mechanism) != mechanism:
        raise SecurityOptionError("sasl.mechanism and sasl.mechanisms differ; give one of them")
    if mechanism.upper() not in PASSWORD_MECHANISMS:
        raise SecurityOptionError(f"sasl.mechanism: takes one of {known}; not {mechanism!r}")
    user, password = given.get("sasl.username"), given.get("sasl.password")
    if "sasl.jaas.config" in given:
        if user is not None or password is not None:
            raise SecurityOptionError(
                "sasl.jaas.config, or sasl.username and sasl.password; not both"
            )
        user, password = _jaas(given["sasl.jaas.config"])
    if not user or not password:
        missing = "sasl.password" if user else "sasl.username"
        raise SecurityOptionError(f"{missing} is needed for {mechanism}")
    return Login(mechanism=Mechanism(mechanism.upper()), user=user, password=password)


_JAAS: Final = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*);\s*",
    re.DOTALL | re.IGNORECASE,
)
_JAAS_OPTION: Final = re.compile(
    r"""\s*(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""", re.DOTALL
)
_JAAS_FORM: Final = (
    "sasl.jaas.config: takes `org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="..." password="...";` (or plain.PlainLoginModule); '
    "or leave it out, and give sasl.username and sasl.password"
)


def _jaas(text: str) -> tuple[str | None, str | None]:
    """The user and the password. A module may be shaded: only the last part of its name counts."""
    match = _JAAS.fullmatch(text)
    if match is None:
        raise SecurityOptionError(_JAAS_FORM)
    module = match["module"].rpartition(".")[2]
    if module not in {"ScramLoginModule", "PlainLoginModule"}:
        raise SecurityOptionError(f"{_JAAS_FORM}; {module} is not served")
    options, position = {}, 0
    rest = match["options"].rstrip()
    while position < len(rest):
        found = _JAAS_OPTION.match(rest, position)
        if found is None:
            raise SecurityOptionError(_JAAS_FORM)
        name, *values = found.groups()
        value = next(one for one in values if one is not None)
        options[name] = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
        position = found.end()
    for name in options.keys() - {"username", "password"}:
        raise SecurityOptionError(f"{_JAAS_FORM}; {name} is not served")
    return options.get("username"), options.get("password")
