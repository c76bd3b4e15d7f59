"""The parts that the policies are put together from: each a choice of behaviour, as a small object.

`rewards` says what a set earns (any win, sum up, all in), `relaxation` how the relaxed problem is solved, `rounding` how its
solution becomes a set, `cascade_order` in which order a cascade asks, `batches` what stays between two batches of feedback,
`starts` how a policy begins, `radii` and `posteriors` what the baselines believe, `statistics` what all of them count.
"""
