"""The helpers of `docs/containers.md` in other languages, compiled and run against the image, as they stand there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from containers.images import ECHOLESS
from containers.podman import CACHE, REPOSITORY, environment
from containers.waiting import wait_until
from echoless.broker.config.names import settings

_IMAGE = f"localhost/{ECHOLESS}:latest"
_WITHIN_S = 600
_POM = """\
<project><modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>test</artifactId><version>1</version><dependencies>
<dependency><groupId>org.testcontainers</groupId><artifactId>testcontainers</artifactId><version>2.0.2</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""
_JAVA = """\
public class Main {
    public static void main(String[] arguments) throws Exception {
        try (var echoless = new EcholessContainer(arguments[0])) {
            echoless.start();
            System.out.println("at " + echoless.bootstrapServers());
            System.in.read();
        }
    }
}
"""
_GO = """\
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	echoless, err := StartEcholess(context.Background(), os.Args[1])
	defer echoless.Terminate(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println("at", echoless.Bootstrap)
	os.Stdin.Read(make([]byte, 1))
}
"""
_JAVASCRIPT = """\
const { startEcholess } = require("./echoless");
startEcholess(process.argv[2]).then(({ bootstrap, container }) => {
  console.log("at", bootstrap);
  process.stdin.once("end", () => container.stop()).resume();
});
"""


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a program that speaks to Docker: podman answers it."""
    path = tmp_path_factory.mktemp("podman") / "socket"
    service = ["podman", "system", "service", "--time=0", f"unix://{path}"]
    with subprocess.Popen(service, env=environment()) as running:
        try:
            wait_until(path.exists, "podman's socket")
            found = {"DOCKER_HOST": f"unix://{path}", "TESTCONTAINERS_RYUK_DISABLED": "true"}
            yield {**environment(), **found}
        finally:
            running.send_signal(signal.SIGTERM)


def _example(heading: str) -> str:
    section = (REPOSITORY / "docs" / "containers.md").read_text().split(f"### {heading}\n")[1]
    found = re.search(r"^```\w+\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, timeout=_WITHIN_S
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _serves_a_client(command: list[str], directory: Path, docker: dict[str, str]) -> None:
    """The program prints where its broker is; a client on the host is led to it, and not to the image's own address."""
    with subprocess.Popen(
        [*command, _IMAGE],
        cwd=directory,
        env=docker,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line)
            if line.startswith("at "):
                break
        assert lines, "the program said nothing"
        assert lines[-1].startswith("at "), "".join(lines)
        bootstrap = lines[-1].split()[1]
        metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30)
        (broker,) = metadata.brokers.values()
        assert f"{broker.host}:{broker.port}" == bootstrap
        running.stdin.close()
        assert running.wait(_WITHIN_S) == 0


def test_java(docker: dict[str, str], tmp_path: Path) -> None:
    """With Testcontainers, whose jars are kept."""
    jars = CACHE / "testcontainers-java"
    if not jars.exists():
        (tmp_path / "pom.xml").write_text(_POM)
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        _run(copy, tmp_path)
    (tmp_path / "EcholessContainer.java").write_text(_example("Java"))
    (tmp_path / "Main.java").write_text(_JAVA)
    path = f"{jars}/*{os.pathsep}{tmp_path}"
    _run(["javac", "-cp", path, "Main.java", "EcholessContainer.java"], tmp_path)
    _serves_a_client(["java", "-cp", path, "Main"], tmp_path, docker)


def test_go(docker: dict[str, str], tmp_path: Path) -> None:
    """In a module of its own."""
    (tmp_path / "go.mod").write_text("module shop\n\ngo 1.24\n")
    (tmp_path / "echoless.go").write_text(_example("Go").replace("package shop", "package main"))
    (tmp_path / "main.go").write_text(_GO)
    _run(["go", "get", "github.com/testcontainers/testcontainers-go@v0.40.0"], tmp_path)
    _run(["go", "mod", "tidy"], tmp_path)
    _run(["go", "build", "-o", "shop", "."], tmp_path)
    _serves_a_client([str(tmp_path / "shop")], tmp_path, docker)


def test_javascript(docker: dict[str, str], tmp_path: Path) -> None:
    """With the package from npm, which is kept."""
    place = CACHE / "testcontainers-node"
    modules = place / "node_modules"
    if not (modules / ".package-lock.json").exists():  # which npm writes last
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text("{}")
        _run(["npm", "install", "--no-audit", "--no-fund", "testcontainers@11"], place)
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "echoless.js").write_text(_example("JavaScript"))
    (tmp_path / "main.js").write_text(_JAVASCRIPT)
    _serves_a_client(["node", "main.js"], tmp_path, docker)


def test_the_service_of_github_has_settings_that_there_are() -> None:
    """Its variables name settings of the broker."""
    workflow: dict[str, Any] = yaml.safe_load(_example("GitHub Actions"))
    service = workflow["jobs"]["test"]["services"]["echoless"]
    known = {f"ECHOLESS_{name.upper()}" for name in settings()}
    assert service["env"].keys() <= known
