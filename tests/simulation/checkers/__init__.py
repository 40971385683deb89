"""The judges: each says in words which promise a finished history has broken.

Written apart from the code under test: logs are read here as bytes, the coordinator's nodes as JSON.
"""
