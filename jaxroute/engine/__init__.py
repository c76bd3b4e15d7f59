"""The engine: `simulate`, and how thousands of runs of a function of one run are played. It knows no problem."""

# What simulates the rounds: a scan over runs on the last axis, C with a thread for each run, or the textbook's `vmap` of a scan; "auto" chooses.
BACKENDS = ("auto", "scan", "kernel", "reference")
# How it is compiled: with all optimisations, or soon.
COMPILE = ("full", "quick")
# How functions, sums and roundings are computed: with the same bits everywhere, or as fast as a GPU can.
ARITHMETICS = ("auto", "exact", "fast")
