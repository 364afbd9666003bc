"""The store of savepoints, their retention and until when they can be restored."""
