"""`echoless serve`: from the configuration to the ready line, and from a signal to the exit.

The ready line is the only output on standard output. Exit codes: 0 after SIGTERM or SIGINT, 1 if the
broker cannot start or loses its session with the coordinator, 2 for an unusable configuration, 70 for
a bug (an assertion).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.allocator import keep_freed_memory
from echoless.broker.config.loading import Config, ConfigError, load_config
from echoless.broker.essential_task import ESSENTIAL_TASK, essential_task, reported_task
from echoless.broker.garbage import end_start
from echoless.broker.log_lines import configure_logs, set_level
from echoless.broker.network.listeners import bind_listeners
from echoless.broker.network.server import DRAIN_S, ListenError, Server, bind, bound_address
from echoless.broker.network.turns import start_client_threads
from echoless.broker.stop import Stop
from echoless.broker.threads import OutOfThreadsError, start_workers
from echoless.broker.tree.node_tree import CoordinationError
from echoless.broker.without_openssl import loop_factory
from echoless.storage.file_system import StorageError

if TYPE_CHECKING:
    from echoless.broker.admin.server import AdminServer
    from echoless.broker.authentication.tls import BrokerTls
    from echoless.broker.broker import Broker
    from echoless.broker.faults.reading_rules import AnyText

logger = logging.getLogger(__name__)

EXIT_CANNOT_SERVE: Final = 1
EXIT_BAD_CONFIGURATION: Final = 2
EXIT_BUG: Final = 70
PORTS_S: Final = 1.0
"""Time reserved for the requests in flight, however long other brokers take to assume leadership."""
PORTS_MARGIN_S: Final = 0.1
CLOSING_S: Final = 1.5
"""Time reserved for closing the logs, which get more if needed, and the session with the coordinator."""
_IDLE_CHECK_INTERVAL_S: Final = 5.0
_THREAD_SWITCH_INTERVAL_S: Final = 0.001
"""The time a thread may compute while the event loop has work; Python's default, 5 ms, is noticeable."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until a signal; returns the exit code."""
    try:
        config = load_config(sys.argv[1:] if argv is None else argv, os.environ)
        rules = _rules_from_start(config)
    except ConfigError as error:
        sys.stderr.write(f"echoless serve: {error}\n")
        return EXIT_BAD_CONFIGURATION
    configure_logs(config.log_format, config.log_level)
    keep_freed_memory()
    stop = Stop()
    try:
        stop.heed_signals()
        if config.stop_with_input:
            stop.heed_input()
        start_workers()
        start_client_threads()
    except OutOfThreadsError as error:
        logger.critical("cannot start: %s", error)
        return EXIT_CANNOT_SERVE
    with asyncio.Runner(loop_factory=loop_factory(speaks_tls=config.speaks_tls)) as runner:
        try:
            code = runner.run(_serve(config, rules, stop))
        except ConfigError as error:
            sys.stderr.write(f"echoless serve: {error}\n")
            code = EXIT_BAD_CONFIGURATION
        except (ListenError, StorageError, CoordinationError, OutOfThreadsError) as error:
            logger.critical("cannot start: %s", error)
            code = EXIT_CANNOT_SERVE
        stop.end(code)
    return code


class _Ports(NamedTuple):
    """The ports where requests arrive."""

    servers: list[Server]
    admin: AdminServer

    async def stop(self, within_s: float) -> None:
        """Answers the requests in flight; those that take longer are cut off."""
        stops = [asyncio.ensure_future(server.stop(within_s)) for server in self.servers]
        stops.append(asyncio.ensure_future(self.admin.stop()))
        await asyncio.wait(stops, timeout=within_s + PORTS_MARGIN_S)


async def _serve(config: Config, rules: Sequence[AnyText], stop: Stop) -> int:
    from echoless.broker.assembly import new_broker
    from echoless.broker.environment import this_machine

    asyncio.get_running_loop().set_exception_handler(_on_unhandled)
    sys.setswitchinterval(_THREAD_SWITCH_INTERVAL_S)
    stop.attach()
    broker = new_broker(config, this_machine())
    broker.record_thread.start()
    try:
        ports = await stop.unless_asked(_start(config, rules, broker))
    except CoordinationError:
        with stop.holding("closing the logs"):
            await broker.close_logs()
        await broker.end_session()
        raise
    with stop.holding("closing the logs"):
        if ports is not None:
            await _until_the_end(ports, broker, stop)
        is_closed = await _close_logs(broker)
    await broker.end_session()
    return EXIT_CANNOT_SERVE if broker.session_lost.is_set() or not is_closed else 0


async def _start(config: Config, rules: Sequence[AnyText], broker: Broker) -> _Ports:
    from echoless.broker.assembly import new_admin_server, new_servers
    from echoless.broker.records.record_thread import SWITCH_INTERVAL_S

    sys.setswitchinterval(SWITCH_INTERVAL_S)
    listeners = bind_listeners(config)
    admin_socket = bind("admin_listen", config.admin_listen)
    if rules:
        broker.faults.add(rules)
    admin = new_admin_server(admin_socket, broker)
    admin.start()
    try:
        await broker.start({one.name: one.advertised for one in listeners})
    except BaseException:
        await admin.stop()
        raise
    set_level(broker.config.log_level)
    broker.settings.listen(partial(_follow_log_level, broker.config))
    servers = new_servers(broker, listeners)
    for server in servers:
        await server.start()
    if broker.tls is not None:
        _follow_certificates(broker.tls)
    end_start()
    sys.stdout.write(
        f"ready broker_id={config.broker_id} "
        f"listen={','.join(str(one.address) for one in listeners[:-1])} "
        f"native={listeners[-1].address} admin={bound_address(admin_socket)}\n"
    )
    sys.stdout.flush()
    return _Ports(servers, admin)


async def _follow_log_level(config: Config, _names: frozenset[str]) -> None:
    set_level(config.log_level)


def _follow_certificates(tls: BrokerTls) -> None:
    """Reads the files of TLS again when they change, and at once on SIGHUP."""
    essential_task(tls.watch(), "watch for new certificates")

    def reload() -> None:
        reported_task(tls.reload(), "reading of new certificates")

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)


async def _until_the_end(ports: _Ports, broker: Broker, stop: Stop) -> None:
    """Serves until the stop begins, then lets others lead, and answers what is in flight."""
    closing = essential_task(_close_idle(ports.servers), "closing of idle connections")
    await _any_of(stop.asked, broker.session_lost)
    stop.begin("the session with the coordinator is lost")
    closing.cancel()
    await broker.hand_over(stop.left_s(reserve_s=PORTS_S + CLOSING_S))
    broker.begin_stop()
    await ports.stop(min(DRAIN_S, stop.left_s(reserve_s=CLOSING_S + PORTS_MARGIN_S)))


async def _close_logs(broker: Broker) -> bool:
    try:
        await broker.close_logs()
    except StorageError as error:
        logger.critical("the log directory could not be closed; the next start recovers: %s", error)
        return False
    return True


def _rules_from_start(config: Config) -> Sequence[AnyText]:
    if config.faults is None:
        return ()
    from echoless.broker.faults.rules_file import read_rules_file

    return read_rules_file(config.faults, config)


async def _any_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


async def _close_idle(servers: Sequence[Server]) -> None:
    while True:
        await asyncio.sleep(_IDLE_CHECK_INTERVAL_S)
        for server in servers:
            server.close_idle()


def _on_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ends the process at once on a bug that breaks an invariant or a part of the broker.

    Going on could corrupt data, or stall without anyone noticing.
    """
    error = context.get("exception")
    logger.error("%s", context.get("message"), exc_info=error)
    if isinstance(error, AssertionError) or ESSENTIAL_TASK in context:
        logger.critical("an invariant does not hold, or a part is missing; stopping at once")
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(EXIT_BUG)
    del loop
