"""What is done with a result: numbers, pictures, and tuning."""
