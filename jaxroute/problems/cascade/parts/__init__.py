"""What COSMOS is put together from.

`search`: Weitzman's rule. `loss`: samples and the loss of the indices; `window`, `streaming`, `location`: estimators of the
indices; `designs`: inverse design matrices. `radii`: bonuses. `evaluation`: an evaluator that is learned from rewards.
`exploration`: when all boxes are opened to learn.
"""
