"""Where the luck of a cascade comes from: `contexts` (requests), `boxes` (scores and costs), `features` (what outputs look
like).
"""
