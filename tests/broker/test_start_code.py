"""The modules of a start come from one file, if that is as good as what Python would find."""

from __future__ import annotations

import compileall
import importlib
import inspect
import marshal
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.broker import start_code
from echoless.broker.start_code import end_start_code, use_start_code
from tests.support.echoless import REPOSITORY, Echoless
from tests.support.raw_client import RawConnection

ROOMS = ("broker", "coordinators", "protocol", "storage")
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with one module, on the path and compiled; the file is another one than the broker's."""
    monkeypatch.setattr(start_code, "PATH", str(tmp_path / "start.code"))
    monkeypatch.setattr(start_code, "_ROOMS", ("start_room",))
    monkeypatch.setattr(start_code, "_IMPORTED", ("start_room.one",))
    monkeypatch.syspath_prepend(str(tmp_path))
    directory = tmp_path / "start_room"
    directory.mkdir()
    (directory / "__init__.py").write_text("")
    (directory / "one.py").write_text("VALUE = 1\ndef double():\n    return 2 * VALUE\n")
    for path in directory.glob("*.py"):
        os.utime(path, (10**9, 10**9))
        py_compile.compile(str(path))
    yield directory
    end_start_code()
    forget()


def forget() -> None:
    """Has the modules imported anew."""
    for name in [one for one in sys.modules if one.split(".")[0] == "start_room"]:
        del sys.modules[name]


def imported() -> tuple[int, str]:
    """The value of the module, and the class of its loader."""
    forget()
    module = importlib.import_module("start_room.one")
    return module.double() // 2, type(module.__loader__).__name__


def test_a_module_of_the_file_is_like_any_other(room: Path) -> None:
    """It knows its source, its compiled file and its package; Python's own finders are not asked."""
    assert start_code.write_start_code() == 2
    use_start_code()
    assert imported() == (1, "_StartLoader")
    package, module = sys.modules["start_room"], sys.modules["start_room.one"]
    assert (module.__file__, list(package.__path__)) == (str(room / "one.py"), [str(room)])
    assert module.__cached__ == importlib.util.cache_from_source(str(room / "one.py"))
    assert "return 2 * VALUE" in inspect.getsource(module.double)
    assert importlib.reload(module).VALUE == 1


def test_a_module_whose_source_has_changed_is_imported_as_usual(room: Path) -> None:
    """By time or by size, as Python judges its own compiled files; the others come from the file."""
    start_code.write_start_code()
    use_start_code()
    (room / "one.py").write_text("VALUE = 2\ndef double():\n    return 2 * VALUE\n")
    assert imported() == (2, "SourceFileLoader")
    assert type(sys.modules["start_room"].__loader__).__name__ == "_StartLoader"


def test_a_module_that_is_gone_is_gone(room: Path) -> None:
    """Its code in the file does not count."""
    start_code.write_start_code()
    use_start_code()
    (room / "one.py").unlink()
    with pytest.raises(ModuleNotFoundError):
        imported()


def test_a_compiled_file_that_is_bound_to_no_times_counts(room: Path) -> None:
    """The image has such files: builders change times."""
    py_compile.compile(str(room / "one.py"), invalidation_mode=UNCHECKED)
    start_code.write_start_code()
    use_start_code()
    os.utime(room / "one.py")
    assert imported() == (1, "_StartLoader")


def test_a_stale_compiled_file_is_left_out(room: Path) -> None:
    """One that Python would compile again is not taken into the file."""
    importlib.import_module("start_room.one")
    os.utime(room / "one.py")
    assert start_code.write_start_code() == 1


def test_after_the_start_everything_is_found_as_usual(room: Path) -> None:
    """The file is given back with the ready line."""
    start_code.write_start_code()
    use_start_code()
    end_start_code()
    assert imported() == (1, "SourceFileLoader")
    assert room.exists()


def other_python(path: Path) -> None:
    content = path.read_bytes()
    size = int.from_bytes(content[:4], "little")
    made_for, length, places = marshal.loads(content[4 : 4 + size])
    index = marshal.dumps(((sys.hexversion + 1, made_for[1]), length, places))
    path.write_bytes(len(index).to_bytes(4, "little") + index + content[4 + size :])


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\xff" * 100),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:20]),
        other_python,
    ],
    ids=["missing", "empty", "garbage", "cut off", "cut off early", "other Python"],
)
def test_a_file_that_cannot_be_used_costs_nothing_but_time(room: Path, spoil: object) -> None:
    """The start continues without it."""
    start_code.write_start_code()
    assert callable(spoil)
    spoil(Path(start_code.PATH))
    use_start_code()
    assert imported() == (1, "SourceFileLoader")
    assert room.exists()


def tree_with_nothing_but_the_file(directory: Path) -> Path:
    """A tree whose sources are empty, and its compiled files gone: whatever is imported as usual lacks all names."""
    for name in ROOMS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, directory / name, ignore=ignored)
    compileall.compile_dir(directory, quiet=2)
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    command = [sys.executable, "-P", "-m", "echoless.broker.start_code"]
    subprocess.run(command, env=environment, check=True, timeout=60)
    for path in directory.rglob("*.pyc"):
        path.unlink()
    for path in directory.rglob("*.py"):
        if path.name not in {"__main__.py", "garbage.py", "start_code.py"}:
            times = path.stat()
            path.write_text("#" * times.st_size)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return directory


@pytest.mark.slow
async def test_a_broker_starts_from_it(tmp_path: Path) -> None:
    """All of ours that it imports before its ready line comes from the file, and it answers."""
    broker = Echoless(tmp_path, tree=tree_with_nothing_but_the_file(tmp_path / "tree"))
    broker.start()
    try:
        connection = await RawConnection.open(broker.kafka_address)
        answer = await connection.call(
            "api_versions", 3, client_software_name="test", client_software_version="1"
        )
        assert answer.error_code == 0
        await connection.close()
    finally:
        broker.kill()
