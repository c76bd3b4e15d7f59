"""Replaceable parts of StageRoute and its baselines.

`deployment` (DeployOPT) selects the models of a stage, and `routing` (RouteOPT) the model of a query. The others settle what the paper leaves open:
`fillers` choose the deployed models that the best routing does not need, `ties` break ties, `estimators` compute the means in the confidence bounds,
`scopes` select the past data for these means, and `budgets` limit the cost of a query.
"""
