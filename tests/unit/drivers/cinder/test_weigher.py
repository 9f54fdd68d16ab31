"""The weigher, as cinder-scheduler runs it."""

import configparser
import pathlib
import uuid
from typing import Any

import pytest
from cinder import context as cinder_context
from cinder import objects
from cinder.scheduler import base_weight, host_manager, weights
from oslo_config import cfg
from oslo_serialization import jsonutils

from acstor.scheduler.cinder import options
from acstor.scheduler.cinder.request import image_id
from acstor.scheduler.cinder.weigher import AcstorImageWeigher
from testbed.fixtures.cinder_driver import DriverHarness

IMAGE = str(uuid.UUID(int=7))
OTHER = str(uuid.UUID(int=8))


class BackEnd:
    """Back-end as the weigher sees it."""

    def __init__(self, host: str, **capabilities: Any) -> None:
        self.host = host
        self.capabilities = capabilities


HAS = BackEnd("has", acstor_images=[OTHER, IMAGE], acstor_images_complete=True)
LACKS = BackEnd("lacks", acstor_images=[OTHER], acstor_images_complete=True)
UNSURE = BackEnd("unsure", acstor_images=[OTHER], acstor_images_complete=False)
FOREIGN = BackEnd("foreign")


class Handler(base_weight.BaseWeightHandler):  # type: ignore[misc] # Cinder has no types
    """Cinder's handler, without its look-up of entry points."""

    object_class = weights.WeighedHost

    def __init__(self) -> None:
        """Load nothing."""


def _properties(**fields: Any) -> dict[str, Any]:
    """Return what Cinder's scheduler hands to weighers, made as it makes it."""
    encryption_key_id = fields.pop("encryption_key_id", None)
    specification = objects.RequestSpec(
        cinder_context.get_admin_context(),
        volume_properties=objects.VolumeProperties(size=1, encryption_key_id=encryption_key_id),
        **fields,
    )
    return {"request_spec": jsonutils.to_primitive(specification), "size": 1}


def _weigh(properties: Any, *back_ends: BackEnd) -> dict[str, float]:
    weighed = Handler().get_weighed_objects([AcstorImageWeigher], list(back_ends), properties)
    return {one.obj.host: one.weight for one in weighed}


def test_back_end_that_has_the_image_comes_first() -> None:
    weighed = _weigh(_properties(image_id=IMAGE), LACKS, FOREIGN, UNSURE, HAS)
    assert weighed == {"has": 1.0, "unsure": 0.5, "lacks": 0.0, "foreign": 0.0}
    assert next(iter(weighed)) == "has"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"image_id": None},
        {"image_id": IMAGE, "snapshot_id": OTHER},
        {"image_id": IMAGE, "source_volid": OTHER},
        {"image_id": IMAGE, "encryption_key_id": OTHER},
    ],
)
def test_volume_that_no_registered_chunk_helps_is_not_weighed(fields: dict[str, Any]) -> None:
    assert set(_weigh(_properties(**fields), HAS, LACKS).values()) == {0.0}


def test_multiplier_is_an_option_of_cinder() -> None:
    cfg.CONF.set_override("acstor_image_weight_multiplier", -3.0)
    try:
        assert _weigh(_properties(image_id=IMAGE), HAS, LACKS) == {"lacks": 0.0, "has": -3.0}
    finally:
        cfg.CONF.clear_override("acstor_image_weight_multiplier")
    options.register_opts(cfg.CONF)


@pytest.mark.parametrize("nonsense", [None, 7, {"request_spec": 7}, {"request_spec": {}}])
def test_request_that_is_not_understood_weighs_nothing(nonsense: Any) -> None:
    assert image_id(nonsense) is None
    assert AcstorImageWeigher()._weigh_object(HAS, nonsense) == 0.0


@pytest.mark.parametrize("images", [7, "text", {"a": 1}, [None, 7]])
def test_capabilities_that_are_not_understood_weigh_nothing(images: Any) -> None:
    odd = BackEnd("odd", acstor_images=images)
    assert _weigh(_properties(image_id=IMAGE), odd, HAS)["has"] == 1.0


def test_back_end_without_capabilities_weighs_nothing() -> None:
    odd = BackEnd("odd")
    odd.capabilities = None  # type: ignore[assignment]
    assert _weigh(_properties(image_id=IMAGE), odd, HAS) == {"has": 1.0, "odd": 0.0}


def test_what_the_driver_tells_arrives_at_the_weigher(harness: DriverHarness) -> None:
    """From the driver's stats through Cinder's BackendState to a weight."""
    registered = harness.image(b"x" * 512)
    stats = jsonutils.loads(jsonutils.dumps(harness.driver.get_volume_stats(refresh=True)))
    state = host_manager.PoolState("c1@acstor", None, None, "acstor")
    state.update_capabilities(stats, None)
    assert AcstorImageWeigher()._weigh_object(state, _properties(image_id=registered)) == 1.0
    assert AcstorImageWeigher()._weigh_object(state, _properties(image_id=IMAGE)) == 0.0


def test_entry_point_has_the_name_of_the_class() -> None:
    """Cinder looks weighers up by it."""
    parser = configparser.ConfigParser()
    parser.read(pathlib.Path(__file__).parents[4] / "setup.cfg")
    entries = dict(
        line.replace(" ", "").split("=", 1)
        for line in parser["entry_points"]["cinder.scheduler.weights"].split("\n")
        if line.strip()
    )
    path = f"{AcstorImageWeigher.__module__}:{AcstorImageWeigher.__name__}"
    assert entries == {AcstorImageWeigher.__name__: path}
