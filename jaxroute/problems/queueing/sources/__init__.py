"""Sources of queries and of users' answers.

`contexts` draws the queries of each round, `arrivals` are processes of arrivals, `choice` is the answer that a user accepts, and `utility` turns
recorded scores and costs into the probability that an answer is accepted.
"""
