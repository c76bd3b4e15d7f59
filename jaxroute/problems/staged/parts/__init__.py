"""Parts of StageRoute and its baselines; each settles something that the paper leaves open.

`deployment` (DeployOPT) selects the models of a stage, `routing` (RouteOPT) the model of a query, and `slots` holds the statistics of the
deployed models. `fillers` fill slots that the best routing does not need, `ties` order equal models, `estimators` give the means in the
confidence bounds, `scopes` select the past data, and `budgets` the cost per query.
"""
