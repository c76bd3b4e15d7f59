"""Distributions of a cascade: `contexts` (requests), `boxes` (scores and costs), `features` (of outputs), `rows` (recorded queries)."""
