"""The job log: records, segments, offsets, heartbeats, totals."""
