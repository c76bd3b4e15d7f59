"""Components of policies."""
