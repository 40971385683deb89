"""Replication as it looks from outside: scenarios in text, played on the simulated cluster.

Each `*.txt` is a story: prose behind `#`, commands behind `>`, and below each command what it shows.
`stage.py` lists the commands; `test_scenarios.py` plays all files. What changed on purpose is written
anew by `python -m tests.scenarios`, and committed if the difference can be explained.
`docs/replication.md` goes through them.
"""
