"""Page of a comparison: a single file that needs no network, with the same numbers as JSON and CSV beside it."""
