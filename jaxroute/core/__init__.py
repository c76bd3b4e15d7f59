"""Types, protocols, checks, random draws and numerics for authors of policies and environments. No module here knows a particular problem."""
