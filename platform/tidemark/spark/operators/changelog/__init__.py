"""What operators over changelogs share: the rows that they keep, and an epoch's changes, staged."""
