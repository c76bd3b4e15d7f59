"""The engine: `simulate`, and how thousands of runs of a function of one run are played. It knows no problem."""
