"""Histories of transactions, and the checker that says which promise one of them breaks.

`events` what was seen, `checker` the promises, `cycles` who depends on whom, `generated` histories of a model broker;
`run` real brokers that are killed under the `clients`, `stored` their logs; `python -m tests.transactions.history`.
"""
