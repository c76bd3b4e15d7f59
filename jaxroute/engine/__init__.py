"""The engine: `simulate`, and how thousands of runs of a function of one run are played. It knows no problem."""

# Who plays the rounds: a scan over runs on the last axis, the same compiled with few optimisations, C with a thread for each run, or the
# textbook's `vmap` of a scan; "auto" chooses.
BACKENDS = ("auto", "scan", "brief", "kernel", "reference")
# Those that are the scan.
SCANS = ("scan", "brief")
