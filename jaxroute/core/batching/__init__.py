"""Runs on the last axis: the map over runs, what depends on what, and how the result is compiled."""
