"""Options of log-ins by the names of librdkafka and of Java's clients, as `Login` or `TokenLogin`, and back to Java's.

Values are never part of a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from echoless.client.security import Extensions, Login, TokenEndpoint, TokenLogin
from echoless.protocol.sasl.mechanism import Mechanism


class SecurityOptionError(ValueError):
    """An option that is wrong, missing or not served; the message names it and the remedy."""


_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_TOKEN: Final = "sasl.oauthbearer.token"  # noqa: S105  the option's name
_HANDLER: Final = "sasl.login.callback.handler.class"
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_CLIENT_FIELDS: Final = {
    "sasl.oauthbearer.client.id": "client_id",
    "sasl.oauthbearer.client.credentials.client.id": "client_id",
    "sasl.oauthbearer.client.secret": "client_secret",
    "sasl.oauthbearer.client.credentials.client.secret": "client_secret",
    "sasl.oauthbearer.scope": "scope",
    "https.ca.location": "ca_location",
    "https.ca.pem": "ca_pem",
}
"""Names, and the field of `TokenEndpoint` that each sets."""
_HEADER: Final = "sasl.oauthbearer.header.urlencode"
_ONE_VALUE: Final = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.grant.type": "client_credentials",
}
"""Names that are needed by librdkafka, and the one value that is served."""
_JAAS_FIELDS: Final = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scope"}
_EXTENSION_PREFIX: Final = "extension_"
_PASSWORD_NAMES: Final = frozenset({"sasl.username", "sasl.password"})
TOKEN_NAMES: Final = frozenset(
    {_URL, _TOKEN, _HANDLER, _EXTENSIONS, _HEADER, *_CLIENT_FIELDS, *_ONE_VALUE}
)
"""The names that OAUTHBEARER takes."""
LOGIN_NAMES: Final = TOKEN_NAMES | {
    *("sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config"),
    *_PASSWORD_NAMES,
}
"""All names of this file."""
_WAYS: Final = f"{_URL} (https:// or file://), {_TOKEN}, or a callback in `TokenLogin`"


def login_in(given: Mapping[str, str]) -> Login | TokenLogin:
    """The log-in among security options. Raises `SecurityOptionError`."""
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms"))
    known = ", ".join(Mechanism)
    if mechanism is None:
        raise SecurityOptionError(f"sasl.mechanism is needed: one of {known}")
    if given.get("sasl.mechanisms", mechanism) != mechanism:
        raise SecurityOptionError("sasl.mechanism and sasl.mechanisms differ; give one of them")
    if mechanism.upper() not in tuple(Mechanism):
        raise SecurityOptionError(f"sasl.mechanism: takes one of {known}; not {mechanism!r}")
    found = Mechanism(mechanism.upper())
    others = _PASSWORD_NAMES if found is Mechanism.OAUTHBEARER else TOKEN_NAMES
    for name in given.keys() & others:
        raise SecurityOptionError(f"{name} has no effect with sasl.mechanism={found}; leave it out")
    return _token_login(given) if found is Mechanism.OAUTHBEARER else _login(given, found)


def java_login(login: Login | TokenLogin) -> dict[str, str]:
    """The same by the names of Java's clients. Raises `SecurityOptionError` for what they do not have."""
    module, options = "plain.Plain", {}
    more: dict[str, str] = {}
    if isinstance(login, TokenLogin):
        module, options, more = "oauthbearer.OAuthBearer", *_java_token(login)
    else:
        if login.mechanism is not Mechanism.PLAIN:
            module = "scram.Scram"
        options = {"username": login.user, "password": login.password}
    written = "".join(f" {name}={_quoted(value)}" for name, value in options.items())
    return {
        "sasl.mechanism": str(login.mechanism),
        "sasl.jaas.config": (
            f"org.apache.kafka.common.security.{module}LoginModule required{written};"
        ),
        **more,
    }


def _java_token(login: TokenLogin) -> tuple[dict[str, str], dict[str, str]]:
    """Options of the module, and those beside it."""
    more = {
        _HANDLER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    }
    options = {_EXTENSION_PREFIX + name: value for name, value in login.extensions}
    endpoint = login.endpoint
    if login.file:
        return options, {**more, _URL: Path(login.file).absolute().as_uri()}
    if endpoint is None:
        raise SecurityOptionError(f"{_TOKEN}: Java's client takes a file; give {_URL}=file://...")
    if endpoint.ca_pem:
        raise SecurityOptionError(
            "https.ca.pem: Java's client takes a file; give https.ca.location"
        )
    options |= {"clientId": endpoint.client_id, "clientSecret": endpoint.client_secret}
    if endpoint.scope:
        options["scope"] = endpoint.scope
    if endpoint.ca_location:
        options |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": endpoint.ca_location,
        }
    if endpoint.encodes_header:
        more[_HEADER] = "true"
    return options, {**more, _URL: endpoint.url}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _login(given: Mapping[str, str], mechanism: Mechanism) -> Login:
    user, password = given.get("sasl.username"), given.get("sasl.password")
    if "sasl.jaas.config" in given:
        if user is not None or password is not None:
            raise SecurityOptionError(
                "sasl.jaas.config, or sasl.username and sasl.password; not both"
            )
        module, options = _jaas(given["sasl.jaas.config"])
        if module == "OAuthBearerLoginModule":
            raise SecurityOptionError(
                f"sasl.jaas.config: {module} needs sasl.mechanism=OAUTHBEARER"
            )
        _refuse_others(options, {"username", "password"})
        user, password = options.get("username"), options.get("password")
    if not user or not password:
        missing = "sasl.password" if user else "sasl.username"
        raise SecurityOptionError(f"{missing} is needed for {mechanism}")
    return Login(mechanism=mechanism, user=user, password=password)


def _token_login(given: Mapping[str, str]) -> TokenLogin:
    for name, value in _ONE_VALUE.items():
        if given.get(name, value).lower() != value:
            raise SecurityOptionError(f"{name}: takes {value}; tokens come from {_WAYS}")
    handler = given.get(_HANDLER, "OAuthBearerLoginCallbackHandler").rpartition(".")[2]
    if handler != "OAuthBearerLoginCallbackHandler":
        raise SecurityOptionError(f"{_HANDLER}: takes Kafka's own; tokens come from {_WAYS}")
    options: dict[str, str] = {}
    if "sasl.jaas.config" in given:
        module, options = _jaas(given["sasl.jaas.config"])
        if module != "OAuthBearerLoginModule":
            raise SecurityOptionError(f"sasl.jaas.config: {module} does not go with OAUTHBEARER")
        ours = {name for name in options if name.startswith(_EXTENSION_PREFIX)}
        _refuse_others(options, {*_JAAS_FIELDS, *ours})
    extensions = _extensions(given, options)
    if bool(given.get(_TOKEN)) == bool(given.get(_URL)):
        raise SecurityOptionError(f"sasl.mechanism=OAUTHBEARER needs one of {_WAYS}")
    if given.get(_TOKEN) or given[_URL].lower().startswith("file:"):
        for name in given.keys() & {*_CLIENT_FIELDS, _HEADER}:
            raise SecurityOptionError(f"{name} has no effect without an endpoint for tokens")
        if given.get(_TOKEN):
            return TokenLogin(token=given[_TOKEN], extensions=extensions)
        return TokenLogin(file=_file(given[_URL]), extensions=extensions)
    return TokenLogin(endpoint=_endpoint(given, options), extensions=extensions)


def _file(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or len(parts.path) < 2 or parts.query:
        raise SecurityOptionError(f"{_URL}: takes file:///PATH for a file")
    return unquote(parts.path)


def _endpoint(given: Mapping[str, str], options: Mapping[str, str]) -> TokenEndpoint:
    _check_url(given[_URL])
    fields: dict[str, str] = {}
    named = [(name, field, given) for name, field in _CLIENT_FIELDS.items()]
    named += [(name, field, options) for name, field in _JAAS_FIELDS.items()]
    for name, field, source in named:
        if not (value := source.get(name)):
            continue
        if fields.setdefault(field, value) != value:
            raise SecurityOptionError(f"{name} is given twice, and differs; give it once")
    for name in ("client_id", "client_secret"):
        if not fields.get(name):
            option = f"sasl.oauthbearer.{name.replace('_', '.')}"
            raise SecurityOptionError(f"{option} is needed for {_URL}")
    if fields.get("ca_location") and fields.get("ca_pem"):
        raise SecurityOptionError("https.ca.location and https.ca.pem: give one of them")
    encodes = given.get(_HEADER, "false").lower()
    if encodes not in {"true", "false"}:
        raise SecurityOptionError(f"{_HEADER}: takes true or false")
    return TokenEndpoint(url=given[_URL], encodes_header=encodes == "true", **fields)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_local = parts.hostname in {"localhost", "127.0.0.1", "::1"}
        is_usable = parts.scheme == "https" or (parts.scheme == "http" and is_local)
        is_usable = is_usable and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if (
        not is_usable
        or "@" in parts.netloc
        or parts.fragment
        or not url.isprintable()
        or " " in url
    ):
        raise SecurityOptionError(
            f"{_URL}: takes https://HOST[:PORT]/PATH or file:///PATH; http:// on loopback only"
        )


def _extensions(given: Mapping[str, str], options: Mapping[str, str]) -> Extensions:
    pairs: dict[str, str] = {}
    for item in filter(None, given.get(_EXTENSIONS, "").split(",")):
        name, _, value = item.strip().partition("=")
        pairs[name] = value
    for name, value in options.items():
        if name.startswith(_EXTENSION_PREFIX):
            pairs[name.removeprefix(_EXTENSION_PREFIX)] = value
    for name, value in pairs.items():
        if (
            re.fullmatch(r"[A-Za-z]+", name) is None
            or name.lower() == "auth"
            or not _is_sent(value)
        ):
            raise SecurityOptionError(f"{_EXTENSIONS}: takes NAME=VALUE[,...], names of letters")
    return tuple(pairs.items())


def _is_sent(value: str) -> bool:
    return re.fullmatch(r"[\x21-\x7e \t\r\n]+", value) is not None


_JAAS: Final = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*);\s*",
    re.DOTALL | re.IGNORECASE,
)
_JAAS_OPTION: Final = re.compile(
    r"""\s*(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""", re.DOTALL
)
_JAAS_FORM: Final = (
    "sasl.jaas.config: takes `org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="..." password="...";` (or plain.PlainLoginModule, or oauthbearer.OAuthBearerLoginModule '
    'with clientId="..." clientSecret="..."); or leave it out, and give sasl.username and sasl.password'
)
_MODULES: Final = frozenset({"ScramLoginModule", "PlainLoginModule", "OAuthBearerLoginModule"})


def _jaas(text: str) -> tuple[str, dict[str, str]]:
    """The module and its options. A module may be shaded: only the last part of its name counts."""
    match = _JAAS.fullmatch(text)
    if match is None:
        raise SecurityOptionError(_JAAS_FORM)
    module = match["module"].rpartition(".")[2]
    if module not in _MODULES:
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
    return module, options


def _refuse_others(options: Mapping[str, str], known: set[str]) -> None:
    for name in options.keys() - known:
        raise SecurityOptionError(f"{_JAAS_FORM}; {name} is not served")
