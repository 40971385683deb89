"""`python -m tests.hostile.siege.attack`: the attackers' process.

Reads its orders as JSON from standard input, prepares, and begins with the next line.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

from tests.hostile.siege.attacker import Attacker, Target
from tests.hostile.siege.attackers import ATTACKERS

_NICENESS = 10
"""Attackers would have separate machines; here they must not take the good client's processor."""


async def _attack(attackers: Sequence[Attacker], orders: dict[str, Any]) -> dict[str, Any]:
    target, until = Target(*orders["target"]), time.monotonic() + orders["seconds"]
    problems: list[str] = []

    async def run(attacker: Attacker) -> None:
        rng = random.Random(f"{orders['seed']} {attacker.name}")
        try:
            await attacker.run(target, rng, until)
        except Exception:  # noqa: BLE001 - one attacker's mistake does not end the others
            problems.append(f"{attacker.name}: {traceback.format_exc()}")

    await asyncio.gather(*map(run, attackers))
    return {"tries": {one.name: dict(one.tries) for one in attackers}, "problems": problems}


def main() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 20_000)), hard))
    os.nice(_NICENESS)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # each write after the end warns
    orders = json.loads(sys.stdin.readline())
    random.seed(orders["seed"])
    attackers = [ATTACKERS[name]() for name in orders["names"]]
    for attacker in attackers:
        attacker.prepare()
    print("prepared", flush=True)
    sys.stdin.readline()
    report = asyncio.run(_attack(attackers, orders))
    print(json.dumps(report), flush=True)
    os._exit(0)  # thousands of connections need not be closed one by one


if __name__ == "__main__":
    main()
