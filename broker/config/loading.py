"""Reads the broker's configuration: where each value comes from, and what is wrong with it.

Precedence: flag, environment (`ECHOLESS_<NAME>`), configuration file (TOML), default. `--set
NAME=VALUE` is a flag for the names that have none of their own. An unknown name or an invalid value is
a `ConfigError` of one line, which `serve` prints before it exits with 2.

Runs before the ready line, so nothing slow is imported here: arguments are read without argparse, which takes
8 ms, and only writes the help.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from echoless.broker.config.advertised import ARRIVAL
from echoless.broker.config.contradictions import contradiction
from echoless.broker.config.listener_names import ADMIN, EXTERNAL
from echoless.broker.config.listener_overrides import Overrides
from echoless.broker.config.names import Authorizer, Config, LogFlush, LogFormat, LogLevel, settings
from echoless.broker.config.security import ClientAuth
from echoless.broker.config.setting import Setting
from echoless.broker.config.values import Address, canonical

__all__ = ["Address", "Config", "ConfigError", "LogFlush", "LogFormat", "LogLevel", "load_config"]

ENVIRONMENT_PREFIX: Final = "ECHOLESS_"
_OPTION: Final = re.compile(r"-\D")
"""The beginning of an option: `-1` is a value."""
_NOT_OPTIONS = r"CONFIG|BOOTSTRAP_SERVER|ADMIN|ADMIN_TOKEN|(\w+_)?(SERVICE_(HOST|PORT)|PORT)(_\w+)?"
"""Variables with our prefix that are not options: the command line's own, and those that Kubernetes
sets for a service named echoless (`ECHOLESS_SERVICE_HOST`, `ECHOLESS_PORT_9092_TCP`)."""


class ConfigError(Exception):
    """An unusable configuration. The message is one line: the option, and what it takes."""


def load_config(argv: Sequence[str], environ: Mapping[str, str]) -> Config:
    """The configuration from the arguments of `serve`, the environment and the file they name.

    Raises `ConfigError`. Prints help and raises `SystemExit(0)` on `--help`.
    """
    known = settings()
    arguments = _arguments(argv, known)
    values: dict[str, Any] = {}
    config_path = arguments.config or environ.get(f"{ENVIRONMENT_PREFIX}CONFIG")
    if config_path:
        values |= _from_file(config_path, known)
    values |= _from_environment(environ, known)
    values |= _from_set(arguments.pairs, known)
    values |= _from_flags(arguments.flags, known)
    return _checked(Config(**values))


class _Arguments(NamedTuple):
    """The arguments of `serve`, as texts."""

    config: str | None
    pairs: list[str]
    """Values of `--set`."""
    flags: dict[str, str]
    """Values of options with a flag of their own, by the name of the option."""


def _arguments(argv: Sequence[str], known: Mapping[str, Setting]) -> _Arguments:
    """Reads `--option VALUE` and `--option=VALUE`; of repeated options the last one counts, except `--set`."""
    flags = {_flag(one.name): one for one in known.values() if one.flag_metavar is not None}
    config, pairs, values = None, [], {}
    rest = deque(argv)
    while rest:
        argument = rest.popleft()
        option, separator, text = argument.partition("=")
        if argument in {"-h", "--help"}:
            _print_help(known)
            raise SystemExit(0)
        setting = flags.get(option)
        if setting is None and option not in {"--config", "--set"}:
            raise ConfigError(f"{argument}: there is no such option; serve --help lists them")
        alone = None if setting is None else setting.flag_alone
        if not separator:
            if rest and not _OPTION.match(rest[0]):
                text = rest.popleft()
            elif alone is None:
                raise ConfigError(f"{option}: expected one argument")
            else:
                text = alone
        if setting is not None:
            values[setting.name] = text
        elif option == "--set":
            pairs.append(text)
        else:
            config = text
    return _Arguments(config, pairs, values)


def _checked(config: Config) -> Config:
    """The configuration, once rules involving more than one option have been checked."""
    found = contradiction(config)
    if found is not None:
        raise ConfigError(found.problem)
    _check_addresses(config)
    if config.listener_security_protocol_map or config.listener_overrides:
        from echoless.broker.config.security_checks import security_problem

        if (problem := security_problem(config)) is not None:
            raise ConfigError(problem)
    _check_authorizer(config)
    if not config.admin_listen.is_loopback:
        _check_admin(config)
    return config


def _check_authorizer(config: Config) -> None:
    """Refuses settings of an authorizer that is not there: the operator believes that it is."""
    if config.authorizer is Authorizer.NONE:
        for name in ("super_users", "allow_everyone_if_no_acl_found", "idempotent_write_acl"):
            if getattr(config, name) != settings()[name].default:
                raise ConfigError(
                    f"{name}: takes effect with authorizer=acl only, which is not set"
                )


def _check_admin(config: Config) -> None:
    """Refuses to let other machines use the admin port without saying who they are."""
    protects = config.security_protocol(ADMIN).is_encrypted
    client_auth = config.of_listener(ADMIN).ssl_client_auth
    has_certificates = protects and client_auth is ClientAuth.REQUIRED
    if not (config.admin_token_file or has_certificates or config.admin_insecure):
        raise ConfigError(
            f"--admin-listen: {config.admin_listen} can be reached by other machines; it takes a "
            "loopback address, or set admin_token_file, or require certificates "
            "(listener_security_protocol_map=ADMIN:SSL, ssl_client_auth=required), or let every "
            "machine use it (admin_insecure=true)"
        )


def _check_addresses(config: Config) -> None:
    """Refuses a listener whose clients could not be given an address."""
    listen, advertise = config.listen, config.advertise
    everywhere = [address for address in listen if address.is_wildcard]
    if everywhere and not advertise:
        raise ConfigError(
            f"--advertise: takes HOST:PORT that clients can connect to, or arrival; "
            f"it is needed because --listen is {everywhere[0]}, which is every interface"
        )
    if advertise and len(advertise) != len(listen):
        raise ConfigError(
            f"--advertise: takes as many addresses as --listen has, {len(listen)}, "
            f"not {len(advertise)}"
        )
    if len(listen) == 1 and config.advertise_networks.of(EXTERNAL):
        raise ConfigError(
            f"advertise_networks: {EXTERNAL} is not listened on: --listen has one address"
        )
    if (
        config.zookeeper_hosts is not None
        and config.native_advertise is None
        and config.native_listen.is_wildcard
        and advertise[:1] == (ARRIVAL,)
        and listen[0].is_wildcard
    ):
        raise ConfigError(
            "native_advertise: takes HOST:PORT at which other brokers reach this one; it is needed "
            "because --advertise is arrival, and --listen and --native-listen are every interface"
        )


def _read(known: Mapping[str, Setting], name: str, text: str, *, source: str) -> Any:
    setting = known.get(name)
    if setting is None:
        raise ConfigError(f"{source}: there is no such option{_suggestion(name, known)}")
    try:
        return setting.kind.read(text)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from error


def _suggestion(name: str, known: Mapping[str, Setting]) -> str:
    import difflib

    close = difflib.get_close_matches(re.sub(r"[.-]", "_", name.lower()), known, n=1)
    return f"; did you mean {close[0]}?" if close else "; serve --help lists them"


def _from_environment(environ: Mapping[str, str], known: Mapping[str, Setting]) -> dict[str, Any]:
    values = {}
    for variable, text in environ.items():
        suffix = variable.removeprefix(ENVIRONMENT_PREFIX)
        if suffix == variable or re.fullmatch(_NOT_OPTIONS, suffix):
            continue
        name = suffix.lower()
        values[name] = _read(known, name, text, source=variable)
    return values


def _from_flags(flags: Mapping[str, str], known: Mapping[str, Setting]) -> dict[str, Any]:
    return {name: _read(known, name, text, source=_flag(name)) for name, text in flags.items()}


def _from_set(pairs: Sequence[str], known: Mapping[str, Setting]) -> dict[str, Any]:
    values = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            raise ConfigError(f"--set: takes NAME=VALUE, not {pair!r}")
        values[name] = _read(known, name, text, source=f"--set {name}")
    return values


def _from_file(config_path: str, known: Mapping[str, Setting]) -> dict[str, Any]:
    import tomllib

    try:
        with open(config_path, "rb") as file:  # noqa: PTH123 - pathlib costs 10 ms before the ready line
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"--config: cannot read {config_path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--config: {config_path} is not TOML: {error}") from error
    tables = table.pop("listener", None)
    values = {
        name: _read(known, name, canonical(value), source=f"{config_path}: {name}")
        for name, value in table.items()
    }
    if tables is not None:
        values["listener_overrides"] = _of_listeners(tables, known, config_path)
    return values


def _of_listeners(tables: object, known: Mapping[str, Setting], config_path: str) -> Overrides:
    from echoless.broker.config.listener_overrides import listener_tables

    try:
        listeners = listener_tables(tables)
    except ValueError as error:
        raise ConfigError(f"{config_path}: {error}") from error
    return {
        listener: {
            name: _read(
                known,
                name,
                canonical(value),
                source=f"{config_path}: listener.{listener.lower()}.{name}",
            )
            for name, value in names.items()
        }
        for listener, names in listeners.items()
    }


_NAMES_TITLE = (
    "every option may also stand in the environment (ECHOLESS_BROKER_ID) or in the configuration\n"
    "file (broker_id = 1); so may these names, which --set takes (--set log_segment_bytes=1GiB):"
)


def _described(setting: Setting) -> str:
    return f"{setting.name} = {canonical(setting.default)}\n        {setting.doc}"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _print_help(known: Mapping[str, Setting]) -> None:
    import argparse

    parser = argparse.ArgumentParser(
        prog="echoless serve",
        description="Run one broker until SIGTERM or SIGINT.",
    )
    parser.add_argument("--config", metavar="FILE.toml", help="configuration file: NAME = value")
    for setting in known.values():
        if setting.flag_metavar is not None:
            parser.add_argument(
                _flag(setting.name),
                metavar=setting.flag_metavar,
                nargs=None if setting.flag_alone is None else "?",
                const=setting.flag_alone,
                help=setting.doc
                + (f" (default {default})" if (default := canonical(setting.default)) else ""),
            )
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", help="set any name below")
    names = [f"  {_described(one)}" for one in known.values() if one.flag_metavar is None]
    sys.stdout.write(parser.format_help() + "\n".join(["", _NAMES_TITLE, *names, ""]))
