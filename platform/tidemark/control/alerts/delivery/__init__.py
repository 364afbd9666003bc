"""How alerts are delivered."""
