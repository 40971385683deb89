"""The coordinator of transactions as a broker serves it: ids by partition of `__transaction_state`, and the markers they send."""
