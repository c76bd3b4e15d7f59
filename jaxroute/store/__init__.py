"""Stored results: locations, files of cells, addresses of cells, arrays of single runs, statistics over runs, loading and export."""
