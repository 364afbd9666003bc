"""The element-by-element reference that tests compare the engine with."""
