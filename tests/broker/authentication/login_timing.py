"""Measures whether the time of a failed log-in tells that a user exists.

python -m tests.broker.authentication.login_timing --pairs 1500

A known user with a wrong password and an unknown user log in in turn, in random order; the median of the paired
differences is what an attacker on this machine could see. A quarter of the users have 16384 iterations, the others
4096.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import statistics
import tempfile
import time
from pathlib import Path

from echoless.broker.authentication.user_nodes import SCRAM_MECHANISMS, alter_user
from echoless.protocol.errors import ErrorCode
from echoless.protocol.sasl.mechanism import PASSWORD_MECHANISMS, Mechanism
from echoless.protocol.sasl.plain import plain_token
from echoless.protocol.sasl.scram import new_credential
from echoless.protocol.sasl.scram_client import ScramClient
from tests.broker.authentication.log_in import authenticate, handshake, refresh, with_users
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection

USERS = 40
_SETTINGS = {"connection_failed_authentication_delay_ms": "0"}


async def seconds_to_fail(address: str, mechanism: Mechanism, user: str) -> float:
    """How long the broker takes for its answers, without what the client computes."""
    connection = await RawConnection.open(address)
    await handshake(connection, mechanism)
    began = time.perf_counter()
    if mechanism is Mechanism.PLAIN:
        answer = await authenticate(connection, plain_token(user, "wrong"))
    else:
        exchange = ScramClient(mechanism, user, "wrong")
        first = await authenticate(connection, exchange.first())
        paused = time.perf_counter()
        final = exchange.final(first.auth_bytes)
        began += time.perf_counter() - paused
        answer = await authenticate(connection, final)
    took = time.perf_counter() - began
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    await connection.close()
    return took


async def measure(running: Running, mechanism: Mechanism, pairs: int) -> str:
    """One row of the table."""
    rng = random.Random(5)
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(pairs):
        names = {True: f"user-{number % USERS}", False: f"other-{rng.randrange(10**6)}"}
        for is_known in rng.sample([True, False], 2):
            seconds = await seconds_to_fail(running.kafka_address, mechanism, names[is_known])
            took[is_known].append(seconds * 1e6)
    known, unknown = took[True], took[False]
    differences = [one - other for one, other in zip(known, unknown, strict=True)]
    low, _, high = statistics.quantiles(differences, n=4)
    slower = sum(one > 0 for one in differences) / pairs
    return (
        f"| {mechanism} | {statistics.median(known):.0f} | {statistics.median(unknown):.0f} "
        f"| {statistics.median(differences):+.1f} | {low:+.0f} to {high:+.0f} | {slower:.1%} |"
    )


async def main(pairs: int) -> None:
    """Prints a row for each mechanism."""
    with tempfile.TemporaryDirectory() as directory:
        async with with_users(Path(directory), **_SETTINGS) as running:
            for number in range(USERS):
                iterations = 4096 if number % 4 else 16_384
                credentials = {
                    one: new_credential(one, "password", iterations) for one in SCRAM_MECHANISMS
                }
                await alter_user(running.broker.tree, f"user-{number}", credentials)
            await refresh(running)
            for mechanism in PASSWORD_MECHANISMS:
                print(await measure(running, mechanism, pairs), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=1500)
    logging.disable()
    asyncio.run(main(parser.parse_args().pairs))
