"""Gets servers of object stores, a small HDFS, and the client of Spark Connect into .cache, for tests/toolchain.py."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Final

from tests.support.tool import Tool, run

STORES: Final = Path(__file__).parents[2] / ".cache" / "object-stores"
VERSITYGW: Final = STORES / "versitygw" / "versitygw"
FAKE_GCS: Final = STORES / "fake-gcs-server" / "fake-gcs-server"
AZURITE: Final = STORES / "azurite" / "node_modules" / ".bin" / "azurite-blob"
S3PROXY: Final = STORES / "s3proxy" / "s3proxy-2.9.0-jar-with-dependencies.jar"
HADOOP: Final = STORES / "hadoop"
SPARK_CONNECT: Final = STORES.parent / "spark-connect"
"""Directory to import from."""
SPARK_AVRO: Final = STORES.parent / "spark-avro-4.2.0" / "spark-avro_2.13-4.2.0.jar"
_CONNECT_PACKAGES: Final = (
    *("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard", "pyyaml"),
)
_VERSITYGW: Final = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_FAKE_GCS: Final = "github.com/fsouza/fake-gcs-server@v1.56.1"
_AZURITE: Final = "azurite@3.37.0"
_S3PROXY: Final = "org.gaul:s3proxy:2.9.0:jar:jar-with-dependencies"
_HADOOP: Final = (
    "org.apache.hadoop:hadoop-client-api:3.5.0",
    "org.apache.hadoop:hadoop-client-runtime:3.5.0",
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
    *("org.slf4j:slf4j-api:1.7.36", "commons-logging:commons-logging:1.2"),
    # The mini-cluster's own code calls assertions.
    *("org.junit.jupiter:junit-jupiter-api:5.11.4", "org.opentest4j:opentest4j:1.3.0"),
    *("org.junit.platform:junit-platform-commons:1.11.4", "org.mockito:mockito-core:4.11.0"),
)


def _build(program: Path, module: str) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    run(["env", f"GOBIN={program.parent}", "go", "install", module])


def _install_azurite() -> None:
    directory = AZURITE.parents[2]
    directory.mkdir(parents=True, exist_ok=True)
    run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(directory), _AZURITE])


def _copy_artifacts(directory: Path, *artifacts: str) -> None:
    for artifact in artifacts:
        goal = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
        run(["mvn", "-q", "-B", *goal])


def _install_spark_connect() -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(SPARK_CONNECT)]
    run([*pip, *_CONNECT_PACKAGES])


def _has_hadoop() -> bool:
    return HADOOP.is_dir() and len(list(HADOOP.iterdir())) >= len(_HADOOP)


TOOLS: Final = (
    Tool(
        name="spark-avro",
        used_by="the ingest of Avro files",
        is_present=SPARK_AVRO.exists,
        prepare=partial(
            _copy_artifacts, SPARK_AVRO.parent, "org.apache.spark:spark-avro_2.13:4.2.0"
        ),
        needs=("java", "mvn"),
    ),
    Tool(
        name="versitygw",
        used_by="the ledger on S3, with many writers at once",
        is_present=VERSITYGW.exists,
        prepare=partial(_build, VERSITYGW, _VERSITYGW),
        needs=("go",),
    ),
    Tool(
        name="fake-gcs-server",
        used_by="the ledger on Google Cloud Storage",
        is_present=FAKE_GCS.exists,
        prepare=partial(_build, FAKE_GCS, _FAKE_GCS),
        needs=("go",),
    ),
    Tool(
        name="azurite",
        used_by="the ledger on Azure",
        is_present=AZURITE.exists,
        prepare=_install_azurite,
        needs=("node", "npm"),
    ),
    Tool(
        name="s3proxy",
        used_by="the ledger on another server that speaks S3",
        is_present=S3PROXY.exists,
        prepare=partial(_copy_artifacts, S3PROXY.parent, _S3PROXY),
        needs=("java", "mvn"),
    ),
    Tool(
        name="hadoop",
        used_by="the ledger on HDFS",
        is_present=_has_hadoop,
        prepare=partial(_copy_artifacts, HADOOP, *_HADOOP),
        needs=("java", "mvn"),
    ),
    Tool(
        name="spark-connect",
        used_by="the sink through Spark Connect, and in Declarative Pipelines",
        is_present=(SPARK_CONNECT / "grpc_status").is_dir,
        prepare=_install_spark_connect,
    ),
)
