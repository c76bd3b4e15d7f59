"""The rounds of runs as C, made from the same functions of one run that the scan plays: a thread for each run on a GPU, several at once on a CPU."""
