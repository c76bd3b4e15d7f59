"""Results and what keeps them: places, packs of addressed cells, single runs, statistics over the runs, and what a store holds."""
