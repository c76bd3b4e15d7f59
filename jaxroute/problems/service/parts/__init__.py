"""Components of MESS+ and its baselines.

`virtual_queue`: the virtual queue of missing satisfaction. `predictors`: predictors of satisfaction. `costs`: cost models. `pretraining`: parameters of
a predictor fitted before a run. `contrastive`: losses of RouterDC.
"""
