"""Cinder and Nova register the same options in one global place, so never both in one process.

These tests run in a process of their own, which ``tests/unit/drivers/test_cinder.py`` starts; by
hand: ``ACSTOR_TEST_CINDER=1 python -m pytest tests/unit/drivers/cinder``.
"""

import os

if "ACSTOR_TEST_CINDER" in os.environ:
    os.environ["OS_CINDER_DISABLE_EVENTLET_PATCHING"] = "1"
    from testbed.fixtures.cinder_driver import (  # noqa: F401
        back_end,
        cinder_settings,
        harness,
        hosts,
        origin,
        repository,
    )
else:
    collect_ignore_glob = ["test_*.py"]
