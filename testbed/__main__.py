"""``python -m testbed``, which ``tools/testbed`` runs."""

import sys

from testbed.command import main

sys.exit(main())
