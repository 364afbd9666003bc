"""When a window fires: built-in triggers, their calls and scopes, panes."""
