"""The whole horizon of a run in one kernel, made from the same functions of one run. Never run on a GPU so far."""
