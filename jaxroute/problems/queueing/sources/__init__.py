"""Sources of queries and of users' choices.

`contexts` draws the queries of each round, `arrivals` has processes of arrivals, `choice` draws the answer that a user accepts, and `utility` converts
recorded scores and costs to the probability that an answer is accepted.
"""
