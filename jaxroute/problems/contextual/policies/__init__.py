"""The policies: `linucb`, `thompson`, `logistic`, `greedy`, `squarecb`. `parameters`: each model its own, or one for all."""
