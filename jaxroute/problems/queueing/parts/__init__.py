"""What the policies and the environment of the queueing problem are put together from, one file a subject.

`backlog`: where waiting queries are kept. `scheduling`: which of them is served. `memory`: what a learner remembers.
`assortments`: numbers and masks of the models that are shown. `triggers`: when a new query is explored.
"""
