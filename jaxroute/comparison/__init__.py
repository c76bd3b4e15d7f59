"""From a log of queries to one answer: which way of routing reaches a quality for the least money, and how sure that is."""
