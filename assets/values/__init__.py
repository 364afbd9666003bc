"""Values, texts and locations as Dagster shows them."""
