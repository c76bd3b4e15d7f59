"""Sources of queries and of users' answers.

`arrivals`: processes of arrivals. `contexts`: arrivals, contexts and random numbers of each round, at random, recorded, or from a pool of prompts.
`choice`: the answer that a user accepts. `utility`: from recorded scores and costs to the probability that an answer is accepted.
"""
