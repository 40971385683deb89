"""The longest step of the event loop that a request of any API can cause, measured inside a real broker.

`measured_broker` is the broker, `shapes` are the requests, `walk` sends them and says how long the loop was held.
"""
