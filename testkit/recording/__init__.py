"""Recordings of what clients did: written by `echoless record`, played again by `echoless replay`."""
