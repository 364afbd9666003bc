"""What follows from a window's definition: columns, descriptions, thresholds, how it is run."""
