"""One module per method; `parameters` gives each model a separate parameter or all the same one, `base` holds shared code."""
