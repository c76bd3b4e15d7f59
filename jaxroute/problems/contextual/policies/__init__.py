"""Policies that learn, one module per family of methods; `parameters` holds the shared code."""
