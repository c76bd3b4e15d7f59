"""The problems: one folder each, none knows another."""
