"""The part of `echoless demo` that runs a producer and counts."""
