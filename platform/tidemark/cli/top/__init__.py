"""``tidemark top``: jobs in the terminal, with keys to move between them."""
