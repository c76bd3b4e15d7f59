"""Batching of functions over runs, with the run axis last, and the analysis of which values differ between runs."""
