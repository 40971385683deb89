"""Replication as it looks from outside: scenarios in text, played on the simulated cluster.

Each `*.txt` is a story: prose after `#`, commands after `>`, and below each command its output.
`stage.py` lists the commands; `test_scenarios.py` plays all files. Deliberate changes are rewritten
by `python -m tests.scenarios`, and committed if the difference can be explained.
`docs/replication.md` goes through them.
"""
