"""`python -m echoless.spark package DIR`: makes the zip and the script that `spark-submit` needs.

    spark-submit --py-files DIR/echoless.zip DIR/echoless_pipeline.py mirror ...

The zip holds what tasks import of `echoless`; what those import in turn must be installed on the
machines.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated, Final

import typer

_PATH: Final = Path(__file__).parents[2]
"""Directory that `echoless` is imported from."""
_PACKAGES: Final = ("protocol", "client", "diagram", "pipeline", "spark")
_SUFFIXES: Final = frozenset({".py", ".properties", ".html", ".xml"})
_ZIP: Final = "echoless.zip"
_SCRIPT: Final = "echoless_pipeline.py"
_SCRIPT_TEXT: Final = f'''\
"""Started by spark-submit, which has put echoless.zip on the path."""

from echoless.spark.__main__ import main

main("spark-submit {_SCRIPT}")
'''
_TIME: Final = (2026, 1, 1, 0, 0, 0)
"""Timestamp of all files in the zip: the same sources make the same bytes."""


def package_command(
    directory: Annotated[Path, typer.Argument(help="Directory for the zip and the script.")],
) -> None:
    """Make the files that spark-submit takes: docs/spark.md."""
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(directory / _ZIP, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _sources():
            info = zipfile.ZipInfo(path.relative_to(_PATH).as_posix(), _TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    (directory / _SCRIPT).write_text(_SCRIPT_TEXT)
    typer.echo(f"spark-submit --py-files {directory / _ZIP} {directory / _SCRIPT} --help")


def _sources() -> list[Path]:
    package = _PATH / "echoless"
    return sorted(
        path
        for paths in [package.glob("*"), *((package / name).rglob("*") for name in _PACKAGES)]
        for path in paths
        if path.suffix in _SUFFIXES and path.is_file()
    )
