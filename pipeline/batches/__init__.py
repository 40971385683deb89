"""The batch headers of a log as rows, read from a data directory or a running cluster."""
