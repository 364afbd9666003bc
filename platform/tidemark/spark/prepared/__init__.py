"""Passes over few rows whose plan is made once in a run, and bound to the files and numbers of each epoch."""
