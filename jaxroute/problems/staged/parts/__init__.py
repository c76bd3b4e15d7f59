"""Parts that StageRoute and its baselines are put together from; each settles something that the paper leaves open.

`deployment`: DeployOPT, which models are live in a stage. `fillers`: who gets the slots that the best routing does not need. `ties`:
which of equal models comes first. `estimators`: the means in the confidence bounds, and where they start. `scopes`: which past data
count. `routing`: RouteOPT, which deployed model serves a query. `budgets`: what a query may cost. `slots`: the deployed models' place
in the state.
"""
