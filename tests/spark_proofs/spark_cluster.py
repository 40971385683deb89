"""A real Spark cluster of one master and two workers, and drivers, each a separate process.

The workers have two addresses: Spark starts a speculative twin only on another host. Executors
outlive their driver for a moment, as they do on every cluster; in `local[*]` they could not.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyspark

from echoless.testkit.free_ports import free_port
from tests.support.process_tree import kill, processes_below
from tests.support.quick_jvm import spark_options
from tests.support.server_process import ServerProcess

_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"
_PYTHON: Final = b"pyspark.daemon"
HOSTS: Final = ("127.0.0.2", "127.0.0.3")
_REPOSITORY: Final = Path(__file__).parents[2]
_SPARK_HOME: Final = Path(pyspark.__file__).parent
_MASTER_READY: Final = re.compile(r"Master: I have been elected leader")
_WORKER_READY: Final = re.compile(r"Worker: Successfully registered with master")
_CORES: Final = 4
"""Cores of each worker: two for each of two drivers, which may be there at once."""
_DAEMON_OPTIONS: Final = f"-Dspark.master.rest.enabled=false {spark_options()}"
EXECUTOR_SETTINGS: Final = {
    "spark.executor.cores": "2",
    "spark.cores.max": "4",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "700m",
    "spark.executor.extraJavaOptions": spark_options(),
}


class SparkCluster:
    """Runs until `close`. Python workers run this interpreter and see this tree."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._port = free_port()
        self._master = ServerProcess(_MASTER_READY, directory / "master.log")
        self._workers = [ServerProcess(_WORKER_READY, directory / f"{h}.log") for h in HOSTS]

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns when both workers are known to the master."""
        options = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
        self._start(self._master, "master.Master", options)
        with ThreadPoolExecutor(len(HOSTS)) as threads:
            list(threads.map(self._start_worker, HOSTS, self._workers))

    def _start_worker(self, host: str, worker: ServerProcess) -> None:
        options = ["--host", host, "--cores", str(_CORES), "--memory", "4g"]
        options += ["--webui-port", "0", "--work-dir", str(self._directory / host)]
        self._start(worker, "worker.Worker", [*options, self.master])

    def close(self) -> None:
        """Sends SIGKILL to the daemons and their children."""
        for worker in self._workers:
            below = _executors_below(worker.pid) if worker.is_running else []
            worker.kill()
            for pid in below:
                kill(pid)
        self._master.kill()

    def executors(self) -> list[int]:
        return [pid for worker in self._workers for pid in _executors_below(worker.pid)]

    def python_workers(self) -> list[int]:
        return [pid for worker in self._workers for pid in _python_workers_below(worker.pid)]

    def _start(self, process: ServerProcess, name: str, options: list[str]) -> None:
        command = [str(_SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        environment = {
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_DAEMON_JAVA_OPTS": _DAEMON_OPTIONS,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(_REPOSITORY),
        }
        process.start([*command, *options], environment=environment)


def _executors_below(root: int) -> list[int]:
    """The JVMs that run tasks."""
    return sorted(p.pid for p in processes_below(root) if _EXECUTOR in p.command)


def _python_workers_below(root: int) -> list[int]:
    """The forked workers, without the daemons that fork them."""
    found = {p.pid: p for p in processes_below(root) if _PYTHON in p.command}
    return sorted(pid for pid, process in found.items() if process.parent in found)


class Driver:
    """One process of the query: Python and its JVM, in their own process group."""

    def __init__(self, log: Path, options: Mapping[str, object]) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark_proofs.query", json.dumps(options)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=_REPOSITORY,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        return self._process.poll()

    def wait(self) -> int:
        """Waits until it ends by itself; returns the exit status."""
        return self._process.wait()

    def pause(self) -> None:
        """Sends SIGSTOP to both; its executors continue."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Sends SIGKILL to both at once. May be called repeatedly."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
