"""What the long proofs share, and the command that runs them all: `python -m tests.proofs`."""
