"""Types, protocols, checks, random draws and numerics for authors of policies and environments, independent of any particular problem."""
