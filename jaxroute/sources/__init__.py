"""Random rewards and costs, and rows of tables, for the environments of all problems."""
