"""The job store: paths, object stores, checksummed documents."""
