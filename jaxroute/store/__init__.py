"""Results and what keeps them: descriptions, digests, locks, runs, and statistics over the runs."""
