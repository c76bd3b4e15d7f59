"""What policies of the stochastic bandit are put together from."""
