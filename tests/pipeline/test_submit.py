"""Jobs on a stand-alone cluster of two workers, whose Python lacks the package, as `docs/spark.md` says to start them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest

from echoless.pipeline.package import package_command
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.spark_proofs.spark_cluster import EXECUTOR_SETTINGS, SparkCluster
from tests.toolchain import require

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 3
ROWS = 2000
_TIMEOUT_S = 300
_REFUSAL = "Cluster deploy mode is currently not supported for python applications on standalone"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    require("java")
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster") / "spark")
    cluster.start()
    yield cluster
    cluster.close()


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with everything but the package."""
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(f"{Path(pyarrow.__file__).parents[1]}\n")
    assert "No module named 'echoless'" in run([str(place / "bin/python"), "-c", "import echoless"])
    return place


def run(command: list[str], **variables: str) -> str:
    """Runs it to its end, with nothing of this tree on the path; returns what it has printed."""
    inherited = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        env={**inherited, "SPARK_LOCAL_IP": "127.0.0.1", **variables},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return f"{done.stdout}\nended with {done.returncode}"


def submit(cluster: SparkCluster, *arguments: str, python: Path) -> str:
    """Runs spark-submit with this Python for the driver."""
    import pyspark

    home = Path(pyspark.__file__).parent
    settings = (f"--conf={name}={text}" for name, text in EXECUTOR_SETTINGS.items())
    return run(
        [str(home / "bin/spark-submit"), "--master", cluster.master, *settings, *arguments],
        SPARK_HOME=str(home),
        PYSPARK_DRIVER_PYTHON=str(python),
        **({} if "--archives" in arguments else {"PYSPARK_PYTHON": str(python)}),
    )


def ingest(directory: Path, broker: BrokerThread) -> tuple[str, ...]:
    """Arguments of an ingest of lines from two files."""
    rows = directory / "rows"
    rows.mkdir()
    for name in ("one", "two"):
        text = "".join(f'"{name}-{row}"\n' for row in range(ROWS // 2))
        (rows / f"{name}.json").write_text(text)
    return (
        *("ingest", str(rows), "--format", "json", "--topic", "orders", "--to", broker.address),
        *("--checkpoint", str(directory / "checkpoint")),
    )


@pytest.mark.parametrize("way", ["py-files", "archives"])
def test_tasks_get_the_package_from_the_driver(
    way: str, cluster: SparkCluster, environment: Path, tmp_path: Path
) -> None:
    """As a zip, or in an archive of a virtual environment; each row is stored once."""
    package_command(tmp_path / "dist")
    archive, script = tmp_path / "dist/echoless.zip", tmp_path / "dist/echoless_pipeline.py"
    options = ("--py-files", str(archive))
    if way == "archives":
        (packages,) = environment.glob("lib/python*/site-packages")
        zipfile.ZipFile(archive).extractall(packages)
        packed = tmp_path / "environment.tar.gz"
        with tarfile.open(packed, "w:gz", compresslevel=1) as tar:
            tar.add(environment, ".")
        options = (
            *("--archives", f"{packed}#environment"),
            *("--conf", "spark.pyspark.python=environment/bin/python"),
            *("--conf", f"spark.pyspark.driver.python={environment}/bin/python"),
        )
    with BrokerThread(tmp_path / "broker", num_partitions=PARTITIONS) as broker:
        arguments = ingest(tmp_path, broker)
        printed = submit(
            cluster, *options, str(script), *arguments, python=environment / "bin/python"
        )
        assert f"ingest: {ROWS:,} records" in printed, printed
        stored = sorted(str(one, "utf-8") for one in broker.values("orders", PARTITIONS) if one)
    assert stored == sorted(f'"{name}-{n}"' for name in ("one", "two") for n in range(ROWS // 2))


def test_spark_refuses_to_run_the_driver_on_this_cluster(
    cluster: SparkCluster, environment: Path, tmp_path: Path
) -> None:
    """Not for Python; once it does, the page has to say so."""
    package_command(tmp_path)
    script = str(tmp_path / "echoless_pipeline.py")
    options = ("--deploy-mode", "cluster", "--py-files", str(tmp_path / "echoless.zip"))
    printed = submit(cluster, *options, script, "audit", python=environment / "bin/python")
    assert _REFUSAL in printed
