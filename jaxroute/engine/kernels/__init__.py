"""The rounds of a run as C: one thread per run, made from the same functions of one run that the scan plays."""
