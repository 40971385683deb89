"""The common parts of the long proofs, and the command that runs them all.

`python -m tests.proofs`.
"""
