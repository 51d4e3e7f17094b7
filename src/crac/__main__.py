"""``python -m crac`` is the ``crac`` command."""

import sys

from crac.cli import main

sys.exit(main())
