"""The map over runs, with the run axis last, and its analysis of dependence."""
