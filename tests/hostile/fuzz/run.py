"""One run: a real broker, the attack, the client that behaves; and the verdict."""

from __future__ import annotations

import asyncio
import json
import math
import re
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.fuzz.good_client import GoodClient
from tests.hostile.target import TIMEOUT_S, is_answering
from tests.support.echoless import Echoless

WAIT_S_MAX = 5.0
"""The longest that a good record may wait for broker and client; what the machine ran besides is left out."""
_CLOSED = "a request failed inside the broker"


@dataclass(slots=True, frozen=True, kw_only=True)
class Report:
    """The work of one run, and every complaint."""

    requests: int
    waits_s: list[float]
    """Wait of each good record, ascending."""
    complaints: list[str]


def fuzz(
    directory: Path,
    seed: int,
    *,
    first: int = 0,
    seconds: float = math.inf,
    requests: float = math.inf,
) -> Report:
    """Attacks a fresh broker for this long, or with this many requests."""
    broker = Echoless(directory)
    broker.start()
    try:
        options = {"seed": seed, "first": first, "seconds": seconds, "requests": requests}
        return _run(broker, directory / "attack.jsonl", options)
    finally:
        broker.kill()


def _run(broker: Echoless, attack_log: Path, options: Mapping[str, float]) -> Report:
    addresses = (broker.kafka_address, broker.native_address)
    given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "tests.hostile.fuzz.attack", *addresses, *given]
    client = GoodClient(broker.native_address, broker.process.pid)
    complaints: list[str] = []
    with attack_log.open("w") as output:
        attack = subprocess.Popen(command, stdout=output)
        try:
            asyncio.run(client.produce_while(lambda: attack.poll() is None))
        except (AssertionError, EOFError, OSError, TimeoutError) as error:
            complaints.append(f"the good client failed: {error!r}")
        finally:
            attack.kill()
            attack.wait()
    if not complaints and attack.returncode:
        complaints.append(f"the attack ended with {attack.returncode}")
    complaints += _judge(broker, client, attack_log)
    numbers = [
        n for line in attack_log.read_text().splitlines() for n in json.loads(line)["numbers"]
    ]
    return Report(requests=len(numbers), waits_s=sorted(client.waits_s), complaints=complaints)


def _judge(broker: Echoless, client: GoodClient, attack_log: Path) -> list[str]:
    complaints = []
    if not broker.process.is_running or not is_answering(broker.kafka_address):
        complaints.append("the broker does not answer any more")
    else:
        stored = asyncio.run(client.read_all())
        if stored != [b"%d" % number for number in range(len(client.waits_s))]:
            complaints.append(f"{len(client.waits_s)} acknowledged, {len(stored)} stored")
        if max(client.waits_s) > WAIT_S_MAX:
            complaints.append(f"a good record waited for {max(client.waits_s):.3f} s")
        if (failed := _requests_failed(broker)) != 0:
            complaints.append(f"{failed} requests met a bug")
        if broker.terminate() != 0:
            complaints.append("the broker did not stop cleanly")
    log = broker.process.log().splitlines()
    tracebacks = {line[line.index("Traceback") :]: None for line in log if "Traceback" in line}
    complaints += [one.replace("\\n", "\n") for one in tracebacks]
    complaints += [_culprit(line, attack_log) for line in log if _CLOSED in line and "from" in line]
    return complaints


def _requests_failed(broker: Echoless) -> int:
    """The metric's count of failed requests; the log's lines are limited per address."""
    url = f"http://{broker.admin_address}/metrics"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        text = response.read().decode()
    found = re.search(r"^echoless_requests_failed_total (\S+)$", text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def _culprit(line: str, attack_log: Path) -> str:
    """The attack's own line of the connection that the broker's log names by its port."""
    sent = {json.loads(one)["port"]: one for one in attack_log.read_text().splitlines()}
    port = next((port for port in sent if f":{port}:" in line), None)
    return f"{line}\n    {sent.get(port, 'not of the attack')}"
