"""Components of COSMOS.

`search`: Weitzman's rule. `loss`: samples and the loss of the indices; `window`, `streaming`, `location`: estimators of the indices; `designs`:
inverse design matrices. `radii`: bonuses. `evaluator`: scores learned from rewards. `exploration`: periods in which all boxes are opened.
"""
