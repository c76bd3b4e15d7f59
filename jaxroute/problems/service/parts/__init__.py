"""Replaceable parts of MESS+ and its baselines: `predictors` of satisfaction and costs, and `contrastive`, the loss functions of RouterDC."""
