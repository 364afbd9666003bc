"""Result tables: versions, differences of rows, vacuum."""
