"""Statistics shared by several papers.

`running`: means. `confidence`: their radii. `ridge`: linear regressions. `gaussian`: posteriors of linear utilities. `glm`, `links`: generalised linear
models. `mnl`: the multinomial-logit model. `heads`, `sgd`: classifiers trained on line. `contrastive`: features trained on
pairs of prompts.
"""
