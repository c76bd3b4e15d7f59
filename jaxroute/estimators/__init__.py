"""Statistics shared by several papers: means with confidence radii."""
