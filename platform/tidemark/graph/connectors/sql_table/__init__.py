"""Tables of MariaDB, MySQL and SQLite: the sink as it is declared, its types, and its checks."""
