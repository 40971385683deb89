"""The checks of `echoless verify`: a data directory, read and judged without being changed."""
