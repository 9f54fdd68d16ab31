"""Pages of metrics have those that a part of the data plane counts, and no other."""

import re

from testbed.fixtures.documents import ROOT, SOURCE

CODE = ROOT / "crates" / "host" / "src" / "metrics.rs"
ADMIN = SOURCE / "admin"


def named_in(function: str) -> set[str]:
    """Return the metrics that a function of the data plane names."""
    body = CODE.read_text().partition(f"fn {function}(")[2].partition("\n}\n")[0]
    return set(re.findall(r'"(acstor_\w+)"', body))


def described_on(page: str) -> set[str]:
    return set(re.findall(r"``(acstor_\w+)``", (ADMIN / page).read_text()))


def test_page_describes_every_counter_of_the_store() -> None:
    counted = {f"{name}_total" for name in named_in("store_counters")}
    assert len(counted) > 10
    assert described_on("metrics-store.rst") == counted


def test_page_describes_every_metric_of_the_certificates() -> None:
    told = named_in("tls_files")
    assert len(told) == 3
    assert described_on("metrics-certificates.rst") == told
