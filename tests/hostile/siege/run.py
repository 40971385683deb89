"""One siege: the broker, the good clients, a phase without attackers, the attackers, the judgement."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hostile.siege.attacker import Target
from tests.hostile.siege.beats import BEATS_FILE, read_beats
from tests.hostile.siege.processes import Helper
from tests.hostile.siege.traffic import TOPIC
from tests.hostile.siege.turns import normal_s
from tests.hostile.siege.verdict import Cost, Verdict, net_waits
from tests.hostile.target import admin, assert_quiet_log, resident_bytes
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection, create_topic

TOPICS = (TOPIC, "bombs", "left", "produced")
_POLL_S = 0.2
_REPORT_S = 45.0
_BROKEN = "Traceback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The attackers, the duration and the seed."""

    names: Sequence[str]
    seconds: float
    seed: int
    peace_s: float = 3.0
    settings: dict[str, str] = field(default_factory=dict)


class Siege:
    """Runs once."""

    def __init__(self, options: Options, directory: Path) -> None:
        self._options = options
        self._beats = directory / "beats.jsonl"
        self._broker = Echoless(
            directory, options.settings, module="tests.hostile.siege.watched_broker"
        )
        self._broker.process.prefix = ("env", f"{BEATS_FILE}={self._beats}")
        self.verdict = Verdict(options.seed, options.seconds)

    def run(self) -> Verdict:
        """Everything; the broker's process is gone afterwards."""
        try:
            self._broker.start()
            asyncio.run(self._set_the_scene())
            producer = Helper("good_producer", self._broker.kafka_address)
            reader = Helper("good_reader", self._broker.kafka_address)
            try:
                self._phases(producer, reader)
            finally:
                producer.kill()
                reader.kill()
            self._judge_end()
        finally:
            self._broker.kill()
        return self.verdict

    async def _set_the_scene(self) -> None:
        connection = await RawConnection.open(self._broker.kafka_address)
        for name in TOPICS:
            await create_topic(connection, name, 1)
        await connection.close()

    def _phases(self, producer: Helper, reader: Helper) -> None:
        attack = self._prepare_attack()
        try:
            producer.wait_for_line()
            began = time.monotonic()
            self._watch(began + self._options.peace_s)
            besieged = time.monotonic()
            self._attack(attack)
            ended = time.monotonic()
        finally:
            attack.kill()
        produced = producer.report(_REPORT_S)
        if produced is None:
            self._problem("the good producer ended without a report")
            produced = {"batches": 0, "waits": [], "reconnects": [], "refusals": []}
        elif produced["gave_up"]:
            self._problem(f"batch {produced['batches']} of the good producer was given up")
        self._judge_clients(produced, self._read_to_end(reader, produced["batches"]))
        waits = produced["waits"]
        peace, beats = (
            list(read_beats(self._beats, *phase))
            for phase in ((began, besieged), (besieged, ended))
        )
        normal = normal_s([*peace, *beats])
        before = net_waits([wait for wait in waits if wait[0] < besieged], peace)
        self.verdict.peace = Cost.of(before, peace, normal)
        under_attack = [wait for wait in waits if besieged <= wait[0] < ended]
        self.verdict.siege = Cost.of(net_waits(under_attack, beats), beats, normal)
        self.verdict.judge_cost(beats, normal)

    def _prepare_attack(self) -> Helper:
        broker = self._broker
        orders = {
            "target": Target(broker.kafka_address, broker.native_address, broker.admin_address),
            "seconds": self._options.seconds,
            "seed": self._options.seed,
            "names": list(self._options.names),
        }
        attack = Helper("attack")
        attack.send(json.dumps(orders))
        attack.wait_for_line()
        return attack

    def _attack(self, attack: Helper) -> None:
        attack.send("begin")
        self._watch(time.monotonic() + self._options.seconds)
        report = attack.report(_REPORT_S)
        if report is None:
            self._problem("the attackers' process ended without a report")
            return
        self.verdict.tries = report["tries"]
        self.verdict.problems += report["problems"]

    def _watch(self, until: float) -> None:
        """Waits, and looks after the broker."""
        while time.monotonic() < until and self._broker.process.is_running:
            self.verdict.resident_bytes = max(
                self.verdict.resident_bytes, resident_bytes(self._broker)
            )
            time.sleep(_POLL_S)

    def _read_to_end(self, reader: Helper, batches: int) -> dict[str, Any]:
        if not self._broker.process.is_running:
            return {"batches": 0, "problems": [], "reconnects": 0}
        reader.send(str(batches))
        return reader.report(_REPORT_S) or {
            "batches": 0,
            "problems": ["no report"],
            "reconnects": 0,
        }

    def _judge_clients(self, produced: dict[str, Any], read: dict[str, Any]) -> None:
        for kind in ("reconnects", "refusals"):
            for what in produced[kind][:3]:
                self._problem(f"the good producer, {kind}: {what}")
        for what in read["problems"]:
            self._problem(f"the good reader: {what}")
        if read["reconnects"]:
            self._problem(f"the good reader's connection ended {read['reconnects']} times")
        if read["batches"] != produced["batches"]:
            self._problem(f"{produced['batches']} batches sent, {read['batches']} read")

    # --- afterwards

    def _judge_end(self) -> None:
        """Alive, healthy and quiet; stops cleanly, and what is on disk is whole."""
        process = self._broker.process
        if not process.is_running:
            self._problem(f"the broker ended with {process.exit_status}:\n{process.log_tail()}")
            return
        status, document = admin(self._broker, "/health")
        if status != 200:
            self._problem(f"/health: {status} {document}")
        if (code := self._broker.terminate()) != 0:
            self._problem(f"SIGTERM ended it with {code}:\n{process.log_tail()}")
        self._judge_log()
        self._judge_disk()

    def _judge_log(self) -> None:
        try:
            assert_quiet_log(self._broker)
        except AssertionError as error:
            log = self._broker.process.log()
            about = log[max(0, log.find(_BROKEN) - 200) :][:3000] if _BROKEN in log else ""
            self._problem(f"the log: {str(error)[:300]}\n{about}")

    def _judge_disk(self) -> None:
        command = [sys.executable, "-m", "echoless.cli.main", "verify", str(self._broker.data_dir)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self._problem(f"echoless verify: {(done.stdout + done.stderr)[-1500:]}")

    def _problem(self, text: str) -> None:
        self.verdict.problems.append(text)


def run(options: Options) -> Verdict:
    """One siege on a separate broker, whose files are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="siege-") as directory:
        return Siege(options, Path(directory)).run()
