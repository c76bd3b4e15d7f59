"""Statistical estimators that several papers share.

`running`: means. `confidence`: confidence radii of means. `ridge`: linear regressions. `gaussian`: posteriors of linear utilities. `glm`, `links`:
generalised linear models. `mnl`: the multinomial-logit model. `heads`, `sgd`: classifiers trained online. `contrastive`: features trained on
pairs of prompts.
"""
