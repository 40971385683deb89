"""The kinds of configuration values: how each is parsed from text, and the error if it cannot be.

Flags, environment variables, the configuration file, `--set` and topic-level overrides all arrive
as text and are parsed here, so that a value means the same wherever it was written. Knows no names
and no defaults: those are in `broker/config/loading.py` and `broker/config/topic.py`.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
PORT_MAX: Final = 2**16 - 1
NAME_MAX: Final = 253

Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=enum.StrEnum)
Text = TypeVar("Text", bound=str)

_NUMBER_WITH_UNIT = r"(-?\d+)\s*([a-z]*)"
_HOST_NAME = r"[A-Za-z0-9_.-]+"
_WILDCARD = re.compile(
    r"(?:(?:::ffff:)?(?:0x)?0+(?:\.(?:0x)?0+){0,3}|[0:]*:[0:]*)(?:%.*)?", re.IGNORECASE
)
"""All spellings of 0.0.0.0, of which 0 is one, and of `::`."""
_BYTE_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_TIME_UNITS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Address(NamedTuple):
    """An address to listen on or to connect to. If port 0 is allowed, the system picks one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        """Whether it means every interface: fine to listen on, impossible to connect to."""
        return _WILDCARD.fullmatch(self.host) is not None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect to it. Names other than localhost may be anything."""
        if self.host in {"localhost", "127.0.0.1"}:
            return True
        import ipaddress  # takes 3 ms, and few brokers need it

        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class PlaintextAddress(Address):
    """The address of a broker that is called without TLS although this one speaks it (`native_accepts_plaintext`)."""

    __slots__ = ()


class Principals(tuple[str, ...]):
    """Principals, each `TYPE:NAME`."""

    __slots__ = ()

    def __str__(self) -> str:
        return ";".join(self)


class PerAddress(tuple[tuple[str, int], ...]):
    """Numbers, each of one address."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(f"{host}:{number}" for host, number in self)


class ConfigType(enum.IntEnum):
    """The type of a value in DescribeConfigs (Kafka's `ConfigEntry.ConfigType` ids)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class ValueKind(NamedTuple, Generic[Value]):
    """One kind of value: `parse` reads it and raises `ValueError`; `expects` completes "takes"."""

    expects: str
    parse: Callable[[str], Value]
    type: ConfigType = ConfigType.STRING

    @property
    def is_secret(self) -> bool:
        """Whether a value of this kind is never shown to anyone."""
        return self.type is ConfigType.PASSWORD

    def read(self, text: str) -> Value:
        """The value that `text` means. Raises `ValueError` with what it takes and what it got."""
        try:
            return self.parse(text.strip())
        except ValueError as error:
            got = "what was given" if self.is_secret else repr(text)
            raise ValueError(f"takes {self.expects}, not {got}") from error


def integer(least: int, most: int = INT32_MAX) -> ValueKind[int]:
    """An integer from `least` to `most`, inclusive."""
    return ValueKind(
        f"an integer{_range(least, most)}",
        lambda text: _within(int(text), least, most),
        _integer_type(most),
    )


def size(least: int = 0, most: int = INT64_MAX) -> ValueKind[int]:
    """A number of bytes: plain, or with a unit (`64KiB`, `128MiB`, `1GiB`)."""
    return ValueKind(
        f"bytes (1048576, or 1MiB){_range(least, most)}",
        lambda text: _within(_with_unit(text, _BYTE_UNITS), least, most),
        _integer_type(most),
    )


def duration(least: int = 0, most: int = INT64_MAX) -> ValueKind[int]:
    """A time in milliseconds: plain, or with a unit (`500ms`, `30s`, `15m`, `24h`, `7d`)."""
    return ValueKind(
        f"milliseconds (60000, or 60s){_range(least, most)}",
        lambda text: _within(_with_unit(text, _TIME_UNITS), least, most),
        _integer_type(most),
    )


def fraction() -> ValueKind[float]:
    """A number from 0 to 1."""
    return ValueKind("a number from 0 to 1", _parse_fraction, ConfigType.DOUBLE)


def set_of(*options: str) -> ValueKind[tuple[str, ...]]:
    """Some of the given names, at least one, separated by commas."""
    return ValueKind(
        f"{' or '.join(options)}, or several of them with commas between",
        lambda text: _parse_set(text, options),
        ConfigType.LIST,
    )


def any_text(type_: ConfigType = ConfigType.STRING) -> ValueKind[str]:
    """Any text."""
    return ValueKind("text", str, type_)


def boolean() -> ValueKind[bool]:
    """`true` or `false`; also 1, yes, 0, no."""
    return ValueKind("true or false", _parse_boolean, ConfigType.BOOLEAN)


def choice(options: type[Choice], **aliases: Choice) -> ValueKind[Choice]:
    """One of the values of an enum, in any case, or of their aliases."""
    by_lower_case = {option.lower(): option for option in options} | aliases
    return ValueKind(" or ".join(options), lambda text: _chosen(by_lower_case, text))


def only(value: str, reason: str, type_: ConfigType = ConfigType.STRING) -> ValueKind[str]:
    """A Kafka name with a single allowed value here; `reason` says why there is no other."""
    return ValueKind(f"{value} only ({reason})", lambda text: _chosen({value: value}, text), type_)


def path() -> ValueKind[str]:
    """A path; a leading `~` is the home directory."""
    return ValueKind("a path", _parse_path)


def listen_address() -> ValueKind[Address]:
    """`HOST:PORT` or `[IPV6]:PORT`; port 0 picks a free one; no host means every interface."""
    return ValueKind(
        "HOST:PORT (127.0.0.1:9092, [::1]:9092; port 0 picks a free one)",
        lambda text: parse_address(text, port_least=0, default_host="0.0.0.0"),  # noqa: S104 - asked for by leaving the host out
    )


def listen_addresses(most: int) -> ValueKind[tuple[Address, ...]]:
    """One to `most` listen addresses, separated by commas."""
    one = listen_address()
    return ValueKind(
        f"{one.expects}, or {most} of them with a comma between",
        lambda text: _parse_list(text, one, most),
        ConfigType.LIST,
    )


def name() -> ValueKind[str]:
    """Any text but none."""
    return ValueKind("a name", _parse_name)


def optional_name() -> ValueKind[str | None]:
    """Any text; empty means none."""
    return ValueKind("a name", lambda text: text or None)


def optional_path() -> ValueKind[str | None]:
    """A path; empty means none."""
    return ValueKind("a path", lambda text: _parse_path(text) if text else None)


def names() -> ValueKind[tuple[str, ...]]:
    """Host names without ports, separated by commas; empty means none."""
    return ValueKind("names with commas between", _parse_names, ConfigType.LIST)


def principals() -> ValueKind[Principals]:
    """Principals, separated by semicolons since distinguished names have commas; empty means none."""
    return ValueKind("TYPE:NAME[;TYPE:NAME...], as User:alice", _parse_principals, ConfigType.LIST)


def per_address() -> ValueKind[PerAddress]:
    """Numbers from 0 on, each of one IP address; empty means none."""
    return ValueKind("IP:NUMBER[,IP:NUMBER...]", _parse_per_address, ConfigType.LIST)


def credentials() -> ValueKind[str | None]:
    """`USER:PASSWORD`, a secret; empty means none."""
    return ValueKind(
        "USER:PASSWORD", lambda text: _parse_credentials(text) or None, ConfigType.PASSWORD
    )


def password() -> ValueKind[str | None]:
    """A secret; empty means none."""
    return ValueKind("a password", lambda text: text or None, ConfigType.PASSWORD)


def coordinator() -> ValueKind[str]:
    """`embedded`, or `zookeeper://h1:2181,h2:2181/chroot`."""
    return ValueKind(
        "embedded, or zookeeper://HOST:PORT[,HOST:PORT...][/CHROOT]", _parse_coordinator
    )


def parse_address(text: str, *, port_least: int = 1, default_host: str | None = None) -> Address:
    """Parses `HOST:PORT`, `[IPV6]:PORT` or, if there is a default host, `:PORT`.

    Raises `ValueError` if it is none of these or the port is out of range.
    """
    host, separator, port_text = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address stands in brackets")
    host = host or default_host or ""
    if not separator or not host or len(host) > NAME_MAX or not port_text.isdecimal():
        raise ValueError("not HOST:PORT")
    return Address(host, _within(int(port_text), port_least, PORT_MAX))


def canonical(value: object) -> str:
    """A value as text that any client can parse: plain numbers, `true`, `false`, `a,b`; None is empty."""
    if isinstance(value, bool):
        return str(value).lower()
    if type(value) is tuple:
        return ",".join(map(canonical, value))
    return "" if value is None else str(value)


def _integer_type(most: int) -> ConfigType:
    return ConfigType.INT if most <= INT32_MAX else ConfigType.LONG


def _within(value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise ValueError(f"{value} is out of range")
    return value


def _range(least: int, most: int) -> str:
    if most in (INT32_MAX, INT64_MAX):
        return f", at least {least}"
    return f" from {least} to {most}"


def _with_unit(text: str, units: dict[str, int]) -> int:
    match = re.fullmatch(_NUMBER_WITH_UNIT, text, re.IGNORECASE)
    if match is None or match[2].lower() not in units:
        raise ValueError("not a number with a known unit")
    return int(match[1]) * units[match[2].lower()]


def _chosen(by_lower_case: dict[str, Text], text: str) -> Text:
    if text.lower() not in by_lower_case:
        raise ValueError("none of the choices")
    return by_lower_case[text.lower()]


def _parse_boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError("neither true nor false")
    return _BOOLEANS[text.lower()]


def _parse_path(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("not a path")
    return os.path.expanduser(text)  # noqa: PTH111 - pathlib costs 10 ms before the ready line


def _parse_credentials(text: str) -> str:
    user, colon, secret = text.partition(":")
    if text and not (user and colon and secret):
        raise ValueError("a user or a password is missing")
    return text


def _parse_list(text: str, one: ValueKind[Value], most: int) -> tuple[Value, ...]:
    items = tuple(one.parse(item.strip()) for item in text.split(","))
    _within(len(items), 1, most)
    return items


def _parse_fraction(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("out of range")
    return value


def _parse_set(text: str, options: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(item.strip().lower() for item in text.split(",")))
    if not {*found}.issubset(options):
        raise ValueError("none of the choices")
    return found


def _parse_name(text: str) -> str:
    if not text:
        raise ValueError("not a name")
    return text


def _parse_names(text: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(",")) if text else ()
    for name in found:
        if not re.fullmatch(_HOST_NAME, name) or len(name) > NAME_MAX:
            raise ValueError("not a host name")
    return found


def _parse_principals(text: str) -> Principals:
    found = Principals(one.strip() for one in text.split(";") if one.strip())
    for principal in found:
        kind, _, name = principal.partition(":")
        if not kind or not name:
            raise ValueError("not a principal")
    return found


def _parse_per_address(text: str) -> PerAddress:
    import ipaddress  # takes 3 ms, and few brokers need it

    found: dict[str, int] = {}
    for one in filter(None, (one.strip() for one in text.split(","))):
        host, _, number = one.rpartition(":")
        address = str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
        if address in found:
            raise ValueError(f"{address} is there twice")
        found[address] = _within(int(number), 0, INT32_MAX)
    return PerAddress(found.items())


def _parse_coordinator(text: str) -> str:
    if text == "embedded":
        return text
    scheme, separator, rest = text.partition("://")
    hosts, slash, chroot = rest.partition("/")
    if scheme != "zookeeper" or not separator:
        raise ValueError("unknown coordinator")
    if slash and (not chroot or chroot.endswith("/") or "//" in chroot):
        raise ValueError("not a node path")
    for host in hosts.split(","):
        parse_address(host)
    return text
