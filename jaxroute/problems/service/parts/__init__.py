"""What MESS+ and its baselines are put together from.

`virtual_queue`: how much satisfaction is owed. `predictors`: who predicts which models will satisfy. `costs`: what a request
is expected to cost. `pretraining`: parameters of a predictor that were fitted before a run. `contrastive`: the losses of
RouterDC.
"""
