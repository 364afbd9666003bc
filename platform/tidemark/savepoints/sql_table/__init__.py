"""MariaDB, MySQL and SQLite as databases of sinks."""
