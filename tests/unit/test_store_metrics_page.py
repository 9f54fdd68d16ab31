"""The page of the chunk store's metrics has those that the data plane counts, and no other."""

import re

from tests.fixtures.documents import ROOT, SOURCE

CODE = ROOT / "crates" / "pyext" / "src" / "host" / "metrics.rs"
PAGE = SOURCE / "admin" / "metrics-store.rst"


def test_page_describes_every_counter_of_the_store() -> None:
    counters = CODE.read_text().partition("fn store_counters(")[2].partition("\n}\n")[0]
    counted = {f"{name}_total" for name in re.findall(r'"(acstor_\w+)"', counters)}
    assert len(counted) > 10
    assert set(re.findall(r"``(acstor_\w+)``", PAGE.read_text())) == counted
