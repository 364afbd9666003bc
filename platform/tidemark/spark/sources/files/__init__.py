"""Files of a source: columns that their folders name, and the types of those in them."""
