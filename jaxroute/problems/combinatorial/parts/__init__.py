"""Components of the policies: each is a choice of behaviour, as a small object.

`rewards`: rewards of sets (any win, sum up, all in). `relaxation`: solvers of the relaxed problem. `rounding`: rounding of its solution. `cascade_order`:
order of a cascade. `batches`: selections between batches of feedback. `starts`: initial rounds. `radii`, `posteriors`: beliefs of the baselines.
`statistics`: means of outcomes and costs.
"""
