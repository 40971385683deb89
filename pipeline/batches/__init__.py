"""The batch headers of a log as rows: of a data directory, or of a running cluster."""
