"""Tables of Postgres as outputs: access, the epochs that they hold, their columns, and rewinds. Needs no Spark."""
