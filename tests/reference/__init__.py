"""Slow, loop-based float64 references written from the papers, independent of the package under test."""
