"""Integration suites of other projects, run against a broker: `python -m tests.foreign_suites kafka-python`."""
