"""The images that the tests run: `python -m containers.images` makes the missing ones.

Exit status 69: this machine cannot have podman, a container, or the base images; the reason is on stderr.
1: an image cannot be built.

`echoless` is always built, from the current Dockerfile. The base images of it and of the compose
file are pulled; if that is impossible, stand-ins are made and get the same names: debootstrap makes
`debian:12-slim`, and `containers/zookeeper/` on top of it `zookeeper:3.9`.

This machine's access to Python packages (pip's configuration, its certificates) is mounted while an
image is built, and written into none.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from containers.podman import (
    CACHE,
    REPOSITORY,
    TIMEOUT_S,
    PodmanError,
    environment,
    fit_to_this_machine,
    image_size,
    podman,
)
from tests.support.tool import ToolError, debian_program
from tests.toolchain import tools

ECHOLESS: Final = "echoless"
DEBIAN: Final = "debian:12-slim"
ZOOKEEPER: Final = "zookeeper:3.9"
STAND_IN: Final = "echoless.stand-in=true"

_PROGRAMS: Final = ("podman", "runc", "netavark", "aardvark-dns", "debootstrap")
_PIP_CERTIFICATES: Final = "/run/pip-certificates.crt"
_SLIM: Final = tuple(f"/usr/share/{name}" for name in ("doc", "info", "locale", "man"))


def main() -> int:
    """Makes everything, or removes the stand-ins with `--remove`."""
    if sys.argv[1:] == ["--remove"]:
        _remove()
        return 0
    try:
        _install_programs()
        _have(DEBIAN, _make_debian)
        fit_to_this_machine(DEBIAN)
        _try_network(DEBIAN)
    except (ToolError, PodmanError) as error:
        sys.stderr.write(f"images: containers cannot be run here: {error}\n")
        return os.EX_UNAVAILABLE
    try:
        _have(ZOOKEEPER, _make_zookeeper)
        _timed(ECHOLESS, lambda: _build(ECHOLESS, REPOSITORY))
    except (ToolError, PodmanError) as error:
        sys.stderr.write(f"images: {error}\n")
        return 1
    return 0


def _install_programs() -> None:
    program = debian_program("podman", *_PROGRAMS, used_by="the containers")
    if not program.is_present():
        program.prepare()


def _try_network(image: str) -> None:
    """Publish a port, as the tests do, and ask Debian's mirror, as the builds do."""
    podman("run", "--rm", "--publish", "127.0.0.1::9092", image, "true")
    podman("run", "--rm", "--network", "host", image, "apt-get", "update", "-q", "--error-on=any")


def _have(image: str, make: Callable[[], None]) -> None:
    try:
        podman("image", "exists", image)
    except PodmanError:
        try:
            podman("pull", "--quiet", image)
        except PodmanError:
            _timed(f"{image}, a stand-in", make)


def _timed(what: str, make: Callable[[], None]) -> None:
    begun = time.monotonic()
    make()
    size = image_size(what.partition(",")[0]) / 1e6
    print(f"images: {what}: {size:.0f} MB, made in {time.monotonic() - begun:.0f} s")


def _make_debian() -> None:
    """Debian's smallest set of packages without documentation, as in the official slim image."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        root = Path(name)
        _run(["debootstrap", "--variant=minbase", "bookworm", str(root)])
        for directory in (*_SLIM, "/var/cache/apt/archives", "/var/lib/apt/lists"):
            shutil.rmtree(root / directory[1:], ignore_errors=True)
        excluded = "".join(f"path-exclude {directory}/*\n" for directory in _SLIM)
        (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(excluded)
        archive = subprocess.Popen(["tar", "-C", name, "-c", "."], stdout=subprocess.PIPE)
        try:
            subprocess.run(
                ["podman", "import", "--quiet", "--change", f"LABEL {STAND_IN}", "-", DEBIAN],
                stdin=archive.stdout,
                stdout=subprocess.DEVNULL,
                env=environment(),
                check=True,
                timeout=TIMEOUT_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise PodmanError(f"podman import of {DEBIAN} failed: {error}") from error
        finally:
            archive.kill()
            archive.wait()


def _make_zookeeper() -> None:
    """The official image's stand-in, with the server that the tests on the host use as well."""
    server = tools()["zookeeper"]
    if not server.is_present():
        server.prepare()
    from tests.support.zookeeper import ZooKeeperVersion

    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        for file in ZooKeeperVersion.V3_9.jars.glob("*.jar"):
            shutil.copy(file, name)
        for file in (Path(__file__).parent / "zookeeper").iterdir():
            shutil.copy(file, name)
        _build(ZOOKEEPER, Path(name), "--label", STAND_IN)


def _build(image: str, context: Path, *options: str) -> None:
    """Builds in Docker's format: the other has no health checks. The replaced image is removed."""
    replaced = _ids(image)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        mounts = _pip_mounts(Path(name))
        arguments = ("--format", "docker", "--network", "host", *mounts, *options)
        podman("build", *arguments, "--tag", image, str(context))
    for old in set(replaced) - set(_ids(image)):
        podman("image", "rm", old)


def _ids(image: str) -> list[str]:
    """The ids of the image: none or one."""
    return podman("images", "--quiet", "--no-trunc", image).split()


def _pip_mounts(directory: Path) -> list[str]:
    """Options that mount pip's configuration of this machine, with the files that it names."""
    settings, mounts = _pip_settings(), []
    certificates = settings.get("cert")
    if certificates:
        mounts.append(f"{certificates}:{_PIP_CERTIFICATES}:ro")
        settings["cert"] = _PIP_CERTIFICATES
    wheels = settings.get("find-links", "")
    if Path(wheels).is_absolute() and Path(wheels).is_dir():
        mounts.append(f"{wheels}:{wheels}:ro")
    file = directory / "pip.conf"
    lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
    file.write_text(f"[global]\n{lines}")
    mounts.append(f"{file}:/etc/pip.conf:ro")
    return [option for mount in mounts for option in ("--volume", mount)]


def _pip_settings() -> dict[str, str]:
    """Name -> value; the environment comes last, and so wins."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    settings = {}
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        name, separator, value = line.partition("=")
        if separator and name.startswith(("global.", ":env:.")):
            settings[name.rpartition(".")[2]] = str(ast.literal_eval(value)).replace("\n", "\n  ")
    return settings


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stdout", "") or str(error)
        raise PodmanError(f"{' '.join(command)} failed: {said[-500:]}") from error


def _remove() -> None:
    """Removes what `main` made: `echoless` and the stand-ins, but nothing that was pulled."""
    made = podman("images", "--quiet", "--filter", f"label={STAND_IN}").split()
    for image in dict.fromkeys([ECHOLESS, *made]):
        podman("image", "rm", "--force", image)


if __name__ == "__main__":
    sys.exit(main())
