"""Policies that learn from rewards, one module per family of methods; `base` holds the state and parameters that they share."""
