"""Replaceable parts of the policies: `predictors` of satisfaction and costs, and `contrastive`, the training of RouterDC."""
