"""Replaceable parts of the policies.

`rewards` has the rewards of a set (any success, their sum, all succeed), `relaxation` the solvers of the relaxed problem, and `rounding` the rounding
of a solution to a set. `beliefs` has means, radii and posteriors, `rounds` the rules for first rounds, for batches and for the order of a cascade.
"""
