"""The checks behind `echoless verify`: a data directory, read and judged without being changed."""
