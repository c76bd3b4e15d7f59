"""One module per method; `base` holds their shared state and parameters."""
