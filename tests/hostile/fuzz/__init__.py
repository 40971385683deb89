"""Hostile requests to every API and version served, made from kio's schemas, against a real broker.

`python -m tests.hostile.fuzz --seconds 60 --seed 7`. A separate process attacks (`attack`), while a
well-behaved client produces (`good_client`); `run` ties them together and judges. Request number N
of a seed is always the same, whatever came before it (`kafka_requests`, `native_messages`); only
the ids of topics, which the broker draws, differ from run to run.
"""
