"""What operations are in C, by family."""
