"""Common to all sinks: staged files, and what the job's log knows of an output's place."""
