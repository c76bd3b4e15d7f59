"""Random rewards and costs, and rows of recorded tables, for the environments of all problems."""
