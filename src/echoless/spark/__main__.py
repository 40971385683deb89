"""`python -m echoless.spark audit|mirror|ingest|fetch-connector|package`."""

from __future__ import annotations

import sys

from echoless import what_to_install


def main(prog_name: str = "python -m echoless.spark") -> None:
    """Runs the job that the command line names; exits with 1 if the extra `spark` is not installed."""
    try:
        from echoless.pipeline.commands import app  # noqa: PLC0415  it may be missing
    except ModuleNotFoundError as error:
        remedy = what_to_install(error)
        if remedy is None:
            raise
        sys.exit(f"{prog_name} needs {remedy}")
    app(prog_name=prog_name)


if __name__ == "__main__":
    main()
