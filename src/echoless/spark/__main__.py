"""`python -m echoless.spark`."""

from echoless.pipeline.commands import app

if __name__ == "__main__":
    app(prog_name="pipeline")
