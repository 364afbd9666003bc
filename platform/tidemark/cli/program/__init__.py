"""The command's entry, options and exit codes."""
