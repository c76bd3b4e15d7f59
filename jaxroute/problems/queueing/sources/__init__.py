"""Where queries and users' answers come from.

`contexts`: arrivals, contexts and luck of each round, at random, recorded, or from a pool of prompts. `choice`: which answer
a user accepts. `utility`: from recorded scores and costs to the probability that an answer is accepted.
"""
