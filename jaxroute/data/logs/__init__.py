"""Reads logs of models' answers to queries from files of many formats, and converts them to complete tables."""
