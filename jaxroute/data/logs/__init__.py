"""Reading logs of answers of any kind as complete tables."""
