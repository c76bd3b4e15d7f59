"""Components of the queueing problem.

`backlog` stores the waiting queries, `scheduling` chooses one of them, `waiting` counts waiting times. For `ACQB`, `memory` stores observations, and
`triggers` decide when an arrival is explored.
"""
