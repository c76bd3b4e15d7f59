"""Components of the policies and of the environment of the queueing problem.

`backlog`: the buffer of the waiting queries. `scheduling`: the choice among them. `memory`: the data of a learner. `choice`: the parts of `ACQB` by
sizes. `assortments`: numbers and masks of models. `triggers`: when an arrival is explored. `waiting`: statistics of waiting times.
"""
