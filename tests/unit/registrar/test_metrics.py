"""The registrar's metrics and their page."""

import pathlib
import re

from prometheus_client.openmetrics import parser

from acstor.registrar import metrics
from acstor.registrar.metrics import RegistrarMetrics
from acstor.registrar.registration.job import Outcome, OutcomeKind
from acstor.repository.images import registration
from acstor.repository.images.image_registry import EntryState
from testbed.doubles.registrar_cloud import content_of, describe

PAGE = pathlib.Path(__file__).parents[3] / "doc" / "source" / "admin" / "registrar.rst"


def test_page_lists_exactly_the_metrics() -> None:
    assert set(re.findall(r"``(acstor_registrar_\w+)``", PAGE.read_text())) == set(metrics.ALL)


def test_text_has_every_metric_and_every_state() -> None:
    counted = RegistrarMetrics()
    counted.leader.set(1)
    counted.up.set("origin", True)
    counted.notifications.labels("image.update").inc()
    counted.reconciliations.labels("complete").inc()
    counted.collections.labels("complete").inc()
    families = {
        family.name: family
        for family in parser.text_string_to_metric_families(counted.text())  # type: ignore[no-untyped-call]
    }
    assert set(families) == set(metrics.ALL)
    states = {sample.labels["state"] for sample in families[metrics.IMAGES].samples}
    assert states == {state.value for state in EntryState}


def test_registration_is_counted() -> None:
    counted = RegistrarMetrics()
    image = describe("00000000-0000-4000-8000-000000000001", content_of(1))
    report = registration.Report(image.id, size_bytes=1000, bytes_stored=300)
    counted.note(Outcome(image, OutcomeKind.REGISTERED, "", report, 900, 2.5))
    counted.note(Outcome(image, OutcomeKind.FAILED, "no", None, 50, 1.0))
    text = counted.text()
    for line in (
        f'{metrics.REGISTRATIONS}_total{{outcome="registered"}} 1.0',
        f'{metrics.REGISTRATIONS}_total{{outcome="failed"}} 1.0',
        f"{metrics.READ_BYTES}_total 1000.0",
        f"{metrics.STORED_BYTES}_total 300.0",
        f"{metrics.DOWNLOADED_BYTES}_total 950.0",
        f"{metrics.REGISTRATION_SECONDS}_sum 2.5",
    ):
        assert line in text
