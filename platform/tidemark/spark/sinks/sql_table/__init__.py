"""MariaDB, MySQL and SQLite as sinks."""
