"""Components of the cascade policy COSMOS.

`search` is Weitzman's rule, `indices` and `window` estimate the indices, `radii` are bonuses, `evaluator` learns scores from rewards, and
`exploration` chooses the periods in which all boxes are opened.
"""
