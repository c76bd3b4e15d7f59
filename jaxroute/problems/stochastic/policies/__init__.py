"""Policies, one module per family of methods; `base` holds their shared state and parameters."""
