"""What the author of a policy or an environment imports: types, protocols, checks, draws, numerics; no logic of any problem."""
