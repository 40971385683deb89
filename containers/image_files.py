"""The files that the image adds to bare Debian, collected while it is built (`Dockerfile`).

`python3 image_files.py BASE ENVIRONMENT TARGET` fills the directory TARGET with the virtual environment ENVIRONMENT and,
at their places in Debian, the interpreter, its modules and the shared libraries that both need. The file BASE names the
packages of the final stage, one on a line.

* What neither the broker nor its commands import stays behind (`ABSENT`).
* Modules are there compiled only, and without the columns of their instructions: a traceback shows files and numbers of
  lines, but not their text.
* Debian's packages are listed in `/var/lib/dpkg/status.d`, where scanners look for them. For `dpkg` they are not
  installed, so that `apt-get install` works in an image that builds on this one.
"""

from __future__ import annotations

import ast
import compileall
import fnmatch
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

PACKAGES: Final = ("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "tini")
"""Their shared libraries are found out; everything else that they depend on or recommend is not needed."""

TAKEN: Final = ("usr/bin/python3.11", "usr/bin/tini", "usr/lib/python3.11/*")
LIBRARY: Final = "usr/lib/python3.11"

ABSENT: Final = {
    LIBRARY: """
        EXTERNALLY-MANAGED *.rst sitecustomize.py _pydecimal.py _pyio.py aifc.py antigravity.py asynchat.py
        asyncio/__main__.py asyncore.py bdb.py cProfile.py cgi.py cgitb.py chunk.py cmd.py code.py codeop.py
        compileall.py concurrent/futures/process.py crypt.py curses/* dbm/* distutils/* doctest.py email/mime/*
        filecmp.py fileinput.py graphlib.py html/parser.py imaplib.py imghdr.py imp.py logging/config.py
        logging/handlers.py mailbox.py mailcap.py modulefinder.py multiprocessing/* nntplib.py optparse.py pdb.py
        pickletools.py pipes.py plistlib.py poplib.py profile.py pstats.py pyclbr.py pydoc.py pydoc_data/* sched.py
        shelve.py smtpd.py smtplib.py sndhdr.py statistics.py sunau.py symtable.py tabnanny.py telnetlib.py test/*
        this.py trace.py turtle.py unittest/* uu.py venv/* wave.py xdrlib.py xml/dom/* xml/etree/* xml/parsers/*
        xmlrpc/* zipapp.py zoneinfo/*
        lib-dynload/_codecs_* lib-dynload/_crypt.* lib-dynload/_ctypes_test.* lib-dynload/_curses* lib-dynload/_dbm.*
        lib-dynload/_lsprof.* lib-dynload/_multibytecodec.* lib-dynload/_multiprocessing.* lib-dynload/_posixshmem.*
        lib-dynload/_test* lib-dynload/_xx* lib-dynload/_zoneinfo.* lib-dynload/audioop.* lib-dynload/nis.*
        lib-dynload/ossaudiodev.* lib-dynload/readline.* lib-dynload/xx*
        encodings/big5* encodings/charmap.py encodings/cp[!4]* encodings/cp424.py encodings/euc_* encodings/gb*
        encodings/hp_* encodings/hz.py encodings/iso2022* encodings/iso8859_[!1]* encodings/iso8859_1?.py
        encodings/johab.py encodings/koi8_* encodings/kz1048.py encodings/mac_* encodings/mbcs.py encodings/oem.py
        encodings/palmos.py encodings/ptcp154.py encodings/quopri_codec.py encodings/rot_13.py encodings/shift_*
        encodings/tis_620.py encodings/uu_codec.py
    """,
    "site-packages": """
        *.c *.h *.pxd *.pxi *.pyi *.pyx */py.typed README.md MANIFEST.in *.dist-info/RECORD *.dist-info/sboms/*
        aiohttp/pytest_plugin.py aiohttp/test_utils.py aiohttp/worker.py echoless/testing.py
        echoless/testkit/broker_container.py echoless/testkit/echoless.py echoless/testkit/exactly_once.py
        echoless/testkit/failed_tests.py echoless/testkit/failure_page.py echoless/testkit/missed_faults.py
        echoless/testkit/plugin.py echoless/testkit/reserve.py echoless/testkit/stored_records.py
        echoless/testkit/transactional_topic.py kazoo/testing/* kazoo/tests/* kio/schema/*_delegation_token/*
        kio/schema/*_quorum*/* kio/schema/*_raft_voter/* kio/schema/*_record/* kio/schema/*_snapshot/*
        kio/schema/*share_*/* kio/schema/allocate_producer_ids/* kio/schema/alter_partition/*
        kio/schema/alter_replica_log_dirs/* kio/schema/assign_replicas_to_dirs/* kio/schema/broker_*/*
        kio/schema/control*/* kio/schema/envelope/* kio/schema/push_telemetry/* kio/schema/streams_*/*
        kio/schema/unregister_broker/* kio/schema/vote/* packaging/[!_v]* packaging/_[!_s]* pygments/cmdline.py
        pygments/__main__.py pygments/formatters/[!_]* pygments/lexers/[!_p]* pygments/lexers/_*_builtins.py
        pygments/lexers/p[!y]* pygments/styles/[!_dm]* rich/_win32* rich/_windows_* uvloop/_testbase.py
    """,
}
"""Directory -> patterns of files that are left out.

What only tests and profilers of Python use, servers and formats of other protocols, encodings other than Unicode's and
Latin-1, requests that only Kafka's own brokers send each other, and the colours of `pygments` (`rich` needs its frame).
"""


def main() -> int:
    """Fills the target, and prints what is in it and what was left out, in bytes."""
    base, environment, target = map(Path, sys.argv[1:])
    for package in PACKAGES:
        for path in _files(package):
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in TAKEN):
                _take(path, target)
    shutil.copytree(environment, target / environment.relative_to("/"), symlinks=True)
    (packages,) = target.glob("opt/*/lib/python3.11/site-packages")
    directories = {target / LIBRARY: ABSENT[LIBRARY], packages: ABSENT["site-packages"]}
    absent = {
        module for place, patterns in directories.items() for module in _leave_out(place, patterns)
    }
    for directory in directories:
        _check_imports(directory, absent)
    _compile(target, target / LIBRARY)
    _compile(target, packages)
    owners = _take_shared_libraries(target, {*base.read_text().split()})
    _list_packages({*PACKAGES, *owners}, target)
    return 0


def _files(package: str) -> Iterator[str]:
    """The paths of an installed package's files and links, without the first slash."""
    for path in _output("dpkg", "--listfiles", package).splitlines():
        if Path(path).is_symlink() or Path(path).is_file():
            yield path[1:]


def _take(path: str, target: Path) -> None:
    to = target / path
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(f"/{path}", to, follow_symlinks=False)


def _leave_out(directory: Path, patterns: str) -> Iterator[str]:
    """Removes files, prints what that saves, and yields the names of those that are modules."""
    files = [path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir()]
    for pattern in patterns.split():
        left = [
            path for path in files if fnmatch.fnmatchcase(str(path.relative_to(directory)), pattern)
        ]
        print(f"left out: {sum(path.lstat().st_size for path in left):8d}  {pattern}")
        for path in left:
            path.unlink()
            if path.suffix in (".py", ".so"):
                yield _module(path, directory)
        files = [path for path in files if path not in left]
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def _module(path: Path, directory: Path) -> str:
    """The module that a source or an extension is, by its name up to the first dot."""
    parts = (path.parent / path.name.partition(".")[0]).relative_to(directory).parts
    return ".".join(part for part in parts if part not in ("lib-dynload", "__init__"))


def _check_imports(directory: Path, absent: set[str]) -> None:
    """Raises `SystemExit` if the head of a module that is kept imports one that is not: a library's new release may."""
    for source in directory.rglob("*.py"):
        module = _module(source, directory)
        package = module if source.name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.parse(source.read_bytes()).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                parent = resolve_name("." * node.level + (node.module or ""), package)
                names = [parent, *(f"{parent}.{alias.name}" for alias in node.names)]
            if missing := absent.intersection(names):
                raise SystemExit(f"image_files: {module} imports {missing}: keep it (ABSENT)")


def _compile(target: Path, directory: Path) -> None:
    """Replaces each source by the module that it compiles to, which names the path that the source would have."""
    for source in directory.rglob("*.py"):
        compiled = compileall.compile_file(
            source,
            stripdir=str(target),
            prependdir="/",
            force=True,
            quiet=1,
            legacy=True,
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )
        if not compiled:
            raise SystemExit(f"image_files: cannot compile {source}")
        source.unlink()


def _take_shared_libraries(target: Path, base: set[str]) -> set[str]:
    """Takes what the programs and extensions load and the base has not. Returns the packages that it is from."""
    elves = [path for path in target.rglob("*") if path.is_file() and _is_elf(path)]
    paths = set(re.findall(r"=> (/\S+)", _output("ldd", *map(str, elves))))
    owners = set()
    for path in map(Path, paths):
        if path.is_relative_to(target):
            continue
        found = _output("dpkg", "--search", f"*/{path.name}")
        owner = found.partition(":")[0]
        if owner not in base:
            owners.add(owner)
            for one in {path.parent.resolve() / path.name, path.resolve()}:
                _take(str(one)[1:], target)
    return owners


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _list_packages(names: set[str], target: Path) -> None:
    """Notes the packages for scanners, with their licences where the base's settings let Debian install those."""
    directory = target / "var/lib/dpkg/status.d"
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).write_text(_output("dpkg", "--status", name))
        licence = f"usr/share/doc/{name}/copyright"
        if Path("/", licence).exists():
            _take(licence, target)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
