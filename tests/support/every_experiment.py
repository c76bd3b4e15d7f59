"""All experiments by name: those of the package and the studies in scripts/studies."""

from studies import studies

from jaxroute import experiments

EXPERIMENTS = {**experiments.EXPERIMENTS, **studies()}
