"""The oracle: the same random requests to a real Apache Kafka and to Echoless, every answer compared.

    script.py           what a script provides: its games, topics, settings and names
    game.py             one history while it is played; `SteppedGame` if answers decide what is asked next
    brokers.py          the two brokers of a run, and how they are restarted
    side.py             one of them, as a game asks it
    contest.py          plays games, half before and half after a restart of both
    report.py           counts of named differences, failures with their transcripts
    minimise.py         leaves out the steps that a failure does not need
    messages.py         requests from plain values, and responses as plain values
    scripts.py          the scripts by name

Scripts play on it: `producers/`, `groups/` (classic), `consumers/` (KIP-848), `sessions/` and `transactions/`. Nothing here
imports the code under test, but for the broken brokers that prove that a fault is seen.
"""
