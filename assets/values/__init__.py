"""Values, texts and places as Dagster shows them."""
