"""Statistical estimators that several papers share.

`running`: means and their confidence radii. `gaussian`: posteriors of linear utilities, ridge regressions. `families`: divergences and quantiles of
distributions. `glm`, `links`: generalised linear models. `mnl`: the multinomial-logit model. `heads`: classifiers trained online. `contrastive`:
features trained on pairs of prompts.
"""
