"""The engine: `simulate`, and how thousands of runs of a function of one run are played. It knows no problem."""

# Who plays the rounds: a scan over runs on the last axis, C with a thread for each run, what of these is compiled soonest, or the textbook's
# `vmap` of a scan; "auto" chooses.
BACKENDS = ("auto", "scan", "brief", "kernel", "reference")
