"""Reading topics for `echoless consume`: where to begin, the reader, and the lines it prints."""
