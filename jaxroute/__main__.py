"""`python -m jaxroute` is the `jaxroute` command."""

import sys

from jaxroute.cli import main

sys.exit(main())
