"""The `echoless` command: one file per subcommand, thin."""
