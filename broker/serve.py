"""`echoless serve`: from the configuration to the ready line, and from a signal to the exit.

The ready line is the only thing on standard output. Exit codes: 0 after SIGTERM or SIGINT, 1 when
the broker cannot start or its session with the coordinator is lost, 2 for a configuration that
cannot be used, 70 for a bug (an assertion).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.config import Config, ConfigError, load_config
from broker.coordination.node_tree import CoordinationError
from broker.essential_task import ESSENTIAL_TASK
from broker.listener_names import NATIVE
from broker.listeners import bind_listeners
from broker.logs import configure_logs
from broker.server import ListenError, Server, bind, bound_address
from storage.file_system import StorageError

if TYPE_CHECKING:
    from broker.faults.rule import RuleText

logger = logging.getLogger(__name__)

EXIT_CANNOT_SERVE: Final = 1
EXIT_BAD_CONFIGURATION: Final = 2
EXIT_BUG: Final = 70
GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Requests make tuples by the dozen and cycles hardly ever; Python's 700 would look every 50 requests."""
_IDLE_CHECK_INTERVAL_S: Final = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until a signal; returns the exit code."""
    try:
        config = load_config(sys.argv[1:] if argv is None else argv, os.environ)
        rules = _rules_from_start(config)
    except ConfigError as error:
        sys.stderr.write(f"echoless serve: {error}\n")
        return EXIT_BAD_CONFIGURATION
    configure_logs(config.log_format, config.log_level)
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(config, rules))
    except (ListenError, StorageError, CoordinationError) as error:
        logger.critical("cannot start: %s", error)
        return EXIT_CANNOT_SERVE


async def _serve(config: Config, rules: Sequence[RuleText]) -> int:
    from broker.admin.server import AdminServer
    from broker.broker import Broker
    from broker.dispatch import KafkaDispatcher
    from broker.environment import this_machine
    from broker.native.dispatch import NativeDispatcher

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_on_unhandled)
    stopping = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    listeners = bind_listeners(config)
    admin_socket = bind("admin_listen", config.admin_listen)
    broker = Broker(config, this_machine())
    if rules:
        broker.faults.add(rules)
    await broker.start({one.name: one.advertised for one in listeners})
    kafka, native = KafkaDispatcher(broker), NativeDispatcher(broker)
    connection_ids = itertools.count(1)
    servers = [
        Server(
            one.socket,
            native if one.name == NATIVE else kafka,
            listener_name=one.name,
            config=config,
            budget=broker.request_memory,
            unsent=broker.unsent_answers,
            metrics=broker.metrics,
            connection_ids=connection_ids,
        )
        for one in listeners
    ]
    broker.faults.watch(servers)
    for server in servers:
        await server.start()
    admin = AdminServer(admin_socket, broker)
    admin.start()
    # What lives until the end need not be looked at by every full collection.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.stdout.write(
        f"ready broker_id={config.broker_id} "
        f"listen={','.join(str(one.address) for one in listeners[:-1])} "
        f"native={listeners[-1].address} admin={bound_address(admin_socket)}\n"
    )
    sys.stdout.flush()
    closing = loop.create_task(_close_idle(servers))
    await _any_of(stopping, broker.session_lost)
    logger.info("stopping")
    closing.cancel()
    await broker.hand_over()
    broker.begin_stop()
    await asyncio.gather(*(server.stop() for server in servers))
    await admin.stop()
    await broker.stop()
    return EXIT_CANNOT_SERVE if broker.session_lost.is_set() else 0


def _rules_from_start(config: Config) -> Sequence[RuleText]:
    if config.faults is None:
        return ()
    from broker.faults.rules_file import read_rules_file

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
    """A bug that breaks an invariant, or a part of the broker, ends the process at once.

    Going on could corrupt data, or stand still without anybody noticing.
    """
    error = context.get("exception")
    logger.error("%s", context.get("message"), exc_info=error)
    if isinstance(error, AssertionError) or ESSENTIAL_TASK in context:
        logger.critical("an invariant does not hold, or a part is missing; stopping at once")
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(EXIT_BUG)
    del loop
