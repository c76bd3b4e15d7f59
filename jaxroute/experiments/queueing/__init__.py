"""Experiments on ACQB, a policy for queues of prompts: figures and theory of its paper, and a queue of prompts from the user's table."""

from jaxroute.experiments.queueing import prompts, random_queues

EXPERIMENTS = (*random_queues.FIGURES, *prompts.FIGURES, prompts.TABLE, random_queues.THEORY)
