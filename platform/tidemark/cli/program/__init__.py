"""The command's entry point, options and exit codes."""
