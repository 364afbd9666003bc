"""What results are: watermarks, windows, lateness and panes as pure functions, and an element-by-element reference of the contract."""
