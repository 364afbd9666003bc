"""Reports the progress of submitted jobs as events."""
