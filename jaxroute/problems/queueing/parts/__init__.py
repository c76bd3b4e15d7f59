"""Components of the queueing problem.

`backlog` stores the waiting queries, `scheduling` chooses among them, `waiting` counts waiting times. For `ACQB`, `memory` stores observations,
`choice` chooses components by sizes, `assortments` are sets of models, and `triggers` decide when an arrival is explored.
"""
