"""The store of savepoints, their retention, and how long they can be restored."""
