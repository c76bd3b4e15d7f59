"""Policies that learn from rewards, one module per family of methods; `parameters` holds the code that they share."""
