"""Decision on an image from its record in Glance."""

import dataclasses

import pytest

from acstor.registrar.boot_parts import Naming
from acstor.registrar.decision import Kind, Rules, decide, is_pin_ignored
from testbed.doubles.registrar_cloud import content_of, describe

IMAGE_ID = "00000000-0000-4000-8000-000000000001"
OTHER_ID = "00000000-0000-4000-8000-000000000002"
RULES = Rules(size_max=1 << 20, disk_size_max=1 << 19)
IMAGE = describe(IMAGE_ID, content_of(1))


def test_plain_image_is_registered() -> None:
    for disk_format in ("raw", "qcow2", "iso"):
        decision = decide(dataclasses.replace(IMAGE, disk_format=disk_format), RULES)
        assert (decision.kind, decision.reason, decision.pin) == (Kind.REGISTER, "", False)


def test_size_of_a_file_that_is_no_disk_says_nothing_of_the_disk() -> None:
    image = dataclasses.replace(IMAGE, disk_format="qcow2", size_bytes=(1 << 19) + 1)
    assert decide(image, RULES).kind is Kind.REGISTER


@pytest.mark.parametrize("visibility", ["public", "private", "shared", "community"])
@pytest.mark.parametrize("is_hidden", [True, False])
def test_who_may_see_an_image_makes_no_difference(visibility: str, is_hidden: bool) -> None:
    image = dataclasses.replace(IMAGE, visibility=visibility, is_hidden=is_hidden)
    assert decide(image, RULES).kind is Kind.REGISTER


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"properties": {"acstor_cache": "false"}}, "acstor_cache is false"),
        ({"properties": {"acstor_cache": "No"}}, "acstor_cache is false"),
        ({"container_format": "aki", "disk_format": "aki"}, "kernel, ramdisk"),
        ({"container_format": "ari", "disk_format": "ari"}, "kernel, ramdisk"),
        ({"container_format": "ami", "disk_format": "ami"}, "kernel, ramdisk"),
        ({"container_format": "bare", "disk_format": "ami"}, "kernel, ramdisk"),
        ({"container_format": "ovf"}, "container format ovf"),
        ({"container_format": None}, "container format None"),
        ({"disk_format": "vmdk"}, "disk format vmdk"),
        ({"disk_format": "vhdx"}, "disk format vhdx"),
        ({"disk_format": "luks"}, "disk format luks"),
        ({"disk_format": None}, "disk format None"),
        ({"properties": {"cinder_encryption_key_id": "abc"}}, "cinder_encryption_key_id"),
        ({"properties": {"os_encrypt_format": "LUKSv1"}}, "os_encrypt_format"),
        ({"properties": {"hw_ephemeral_encryption": "true"}}, "hw_ephemeral_encryption"),
        ({"properties": {"img_signature": "abc"}}, "signed"),
        ({"size_bytes": 0}, "empty"),
        ({"size_bytes": None}, "empty"),
        ({"size_bytes": (1 << 20) + 1}, "[registrar] size_max"),
        ({"size_bytes": (1 << 19) + 1}, "[registrar] disk_size_max"),
        ({"size_bytes": (1 << 19) + 1, "disk_format": "iso"}, "[registrar] disk_size_max"),
        ({"md5": None, "hash_algorithm": None, "hash_value": None}, "no checksum"),
        ({"md5": None, "hash_algorithm": "whirlpool"}, "no checksum"),
    ],
)
def test_image_is_left_to_nova(changes: dict[str, object], reason: str) -> None:
    decision = decide(dataclasses.replace(IMAGE, **changes), RULES)  # type: ignore[arg-type]
    assert decision.kind is Kind.LEAVE
    assert reason in decision.reason
    assert decision.is_harmful is ("size_max" not in reason)


@pytest.mark.parametrize(
    "properties",
    [
        {"acstor_cache": "true"},
        {"acstor_cache": "whatever"},
        {"hw_ephemeral_encryption": "false"},
        {"kernel_id": "", "ramdisk_id": ""},
        {"kernel_id": "00000000-0000-4000-8000-000000000002"},
    ],
)
def test_property_that_is_no_reason(properties: dict[str, str]) -> None:
    assert decide(dataclasses.replace(IMAGE, properties=properties), RULES).kind is Kind.REGISTER


def test_signed_image_is_registered_where_the_operator_wants_it() -> None:
    image = dataclasses.replace(IMAGE, properties={"img_signature": "abc"})
    assert decide(image, Rules(1 << 20, 1 << 20, are_signed_left=False)).kind is Kind.REGISTER


@pytest.mark.parametrize(
    ("status", "is_gone"),
    [
        ("deactivated", False),
        ("queued", False),
        ("saving", False),
        ("importing", False),
        ("deleted", True),
        ("pending_delete", True),
        ("killed", True),
    ],
)
def test_image_that_is_not_active_is_withdrawn(status: str, is_gone: bool) -> None:
    decision = decide(dataclasses.replace(IMAGE, status=status), RULES)
    assert (decision.kind, decision.is_gone) == (Kind.WITHDRAW, is_gone)
    assert decision.reason


def test_image_that_glance_does_not_have_is_withdrawn() -> None:
    decision = decide(None, RULES)
    assert (decision.kind, decision.is_gone) == (Kind.WITHDRAW, True)


@pytest.mark.parametrize(
    ("owner", "naming", "is_believed"),
    [
        ("a", Naming(OTHER_ID, "b", is_public=True), True),
        ("", Naming(OTHER_ID, "", is_public=True), True),
        ("a", Naming(OTHER_ID, "a", is_public=False), True),
        ("a", Naming(OTHER_ID, "b", is_public=False), False),
        ("", Naming(OTHER_ID, "b", is_public=False), False),
        ("a", Naming(OTHER_ID, "", is_public=False), False),
        ("", Naming(OTHER_ID, "", is_public=False), False),
    ],
)
@pytest.mark.parametrize("visibility", ["public", "private"])
def test_image_that_others_boot_from_is_left_when_they_are_believed(
    owner: str, naming: Naming, is_believed: bool, visibility: str
) -> None:
    image = dataclasses.replace(IMAGE, owner=owner, visibility=visibility)
    decision = decide(image, RULES, [naming])
    assert decision.kind is (Kind.LEAVE if is_believed else Kind.REGISTER)
    assert (OTHER_ID in decision.reason) is is_believed


def test_reason_names_the_same_image_whatever_order_they_come_in() -> None:
    namings = [Naming(name, "", is_public=True) for name in ("b", "a", "c")]
    reasons = {decide(IMAGE, RULES, order).reason for order in (namings, namings[::-1])}
    assert reasons == {"image a names it as kernel or ramdisk"}


@pytest.mark.parametrize("image_type", ["snapshot", "backup"])
@pytest.mark.parametrize("visibility", ["public", "private"])
def test_what_nova_makes_of_servers_is_left_unless_wanted(image_type: str, visibility: str) -> None:
    properties = {"image_type": image_type, "image_location": "snapshot"}
    image = dataclasses.replace(IMAGE, properties=properties, visibility=visibility)
    decision = decide(image, RULES)
    assert (decision.kind, decision.is_harmful) == (Kind.LEAVE, False)
    assert f"image_type={image_type}" in decision.reason
    assert "[registrar] snapshots" in decision.reason
    wanted = dataclasses.replace(RULES, are_snapshots_left=False)
    assert decide(image, wanted).kind is Kind.REGISTER


def test_other_image_types_are_no_snapshots() -> None:
    for image_type in ("", "image", "Snapshot of nothing"):
        image = dataclasses.replace(IMAGE, properties={"image_type": image_type})
        assert decide(image, RULES).kind is Kind.REGISTER


@pytest.mark.parametrize("visibility", ["public", "private", "shared", "community"])
def test_images_of_other_visibilities_are_left(visibility: str) -> None:
    image = dataclasses.replace(IMAGE, visibility=visibility)
    rules = dataclasses.replace(RULES, visibilities=frozenset({"public", "shared"}))
    decision = decide(image, rules)
    is_wanted = visibility in rules.visibilities
    assert decision.kind is (Kind.REGISTER if is_wanted else Kind.LEAVE)
    assert (f"visibility {visibility}" in decision.reason) is not is_wanted
    assert not decision.is_harmful


@pytest.mark.parametrize(("owner", "is_wanted"), [("a", True), ("b", False), ("", False)])
def test_images_of_other_projects_are_left(owner: str, is_wanted: bool) -> None:
    image = dataclasses.replace(IMAGE, owner=owner, visibility="public")
    assert decide(image, RULES).kind is Kind.REGISTER
    decision = decide(image, dataclasses.replace(RULES, projects=frozenset({"a", "c"})))
    assert decision.kind is (Kind.REGISTER if is_wanted else Kind.LEAVE)
    assert ("[registrar] projects" in decision.reason) is not is_wanted
    assert not decision.is_harmful


def test_harm_is_told_before_what_is_not_wanted() -> None:
    properties = {"image_type": "snapshot", "acstor_cache": "false"}
    decision = decide(dataclasses.replace(IMAGE, properties=properties), RULES)
    assert decision.is_harmful
    assert "acstor_cache" in decision.reason


@pytest.mark.parametrize(
    ("visibility", "owner", "is_pinned"),
    [
        ("public", "tenant", True),
        ("public", "", True),
        ("private", "operators", True),
        ("shared", "operators", True),
        ("private", "tenant", False),
        ("shared", "tenant", False),
        ("community", "tenant", False),
        ("private", "", False),
    ],
)
def test_pin_counts_on_public_images_and_those_of_some_projects(
    visibility: str, owner: str, is_pinned: bool
) -> None:
    rules = dataclasses.replace(RULES, pin_projects=frozenset({"operators"}))
    image = dataclasses.replace(IMAGE, visibility=visibility, owner=owner)
    assert not decide(image, rules).pin
    assert not is_pin_ignored(image, rules)
    for cache in ("true", "false"):  # whatever is decided
        properties = {"acstor_pin": "yes", "acstor_cache": cache}
        asking = dataclasses.replace(image, properties=properties)
        assert decide(asking, rules).pin is is_pinned
        assert is_pin_ignored(asking, rules) is not is_pinned


def test_checksum_is_the_strongest_that_can_be_verified() -> None:
    assert str(IMAGE.checksum) == f"sha512:{IMAGE.hash_value}"
    old = dataclasses.replace(IMAGE, hash_algorithm=None, hash_value=None)
    assert str(old.checksum) == f"md5:{IMAGE.md5}"
    malformed = dataclasses.replace(IMAGE, hash_value="zz")
    assert str(malformed.checksum) == f"md5:{IMAGE.md5}"
    for checksum in (f"md5:{IMAGE.md5}", f"sha512:{IMAGE.hash_value}"):
        assert IMAGE.declares(checksum)
    for other in ("", None, "md5:None", f"sha256:{IMAGE.hash_value}"):
        assert not IMAGE.declares(other)
