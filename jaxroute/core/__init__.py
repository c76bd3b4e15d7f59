"""Names for authors of policies and environments: types, protocols, checks, draws, numerics; no logic of any problem."""
