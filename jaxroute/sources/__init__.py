"""Random draws for the environments of all problems: rewards and costs of models, and the order in which the rows of a recorded table are used."""
