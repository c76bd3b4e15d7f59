"""Start of every Python on the fake GPU: jax asks whether this file of NVIDIA's driver exists before it loads the plugin."""

import os.path

_exists = os.path.exists
os.path.exists = lambda path: path == "/dev/nvidia0" or _exists(path)
