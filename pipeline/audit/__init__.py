"""The audit: proves from batch headers that every record of a log is stored once and in order."""
