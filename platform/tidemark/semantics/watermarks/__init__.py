"""Event time: watermark strategies and generators, sources' progress, the clock of an operator, lateness."""
