"""Nova's settings: read as Nova reads them, refused where links would not work."""

import pathlib

import pytest

from acstor import exception
from acstor.drivers.nova.image_links import nova_settings
from testbed.fixtures.nova_host import NovaHost


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"libvirt": {"images_type": "qcow2"}},
        {"DEFAULT": {"preallocate_images": "space"}},
        {"workarounds": {"disable_deep_image_inspection": True}},
        {"workarounds": {"reserve_disk_resource_for_image_cache": True}},
    ],
)
def test_settings_that_links_work_under(
    tmp_path: pathlib.Path, options: dict[str, dict[str, object]]
) -> None:
    assert NovaHost(tmp_path / "nova", **options).settings.refusal is None


@pytest.mark.parametrize("images_type", ["raw", "flat", "lvm", "rbd", "ploop"])
def test_other_backends_are_refused(tmp_path: pathlib.Path, images_type: str) -> None:
    """Hazard 10: Flat copies the link itself, the others never look at it."""
    settings = NovaHost(tmp_path / "nova", libvirt={"images_type": images_type}).settings
    assert settings.refusal is not None
    assert images_type in settings.refusal


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("DEFAULT", "use_cow_images", "false"),
        ("DEFAULT", "force_raw_images", "false"),
        ("DEFAULT", "compute_driver", "ironic.IronicDriver"),
        ("libvirt", "virt_type", "lxc"),
        ("oslo_concurrency", "disable_process_locking", "true"),
    ],
)
def test_settings_that_links_do_not_work_under(
    tmp_path: pathlib.Path, group: str, name: str, value: str
) -> None:
    settings = NovaHost(tmp_path / "nova", **{group: {name: value}}).settings
    assert settings.refusal is not None
    assert name in settings.refusal


def test_qcow2_does_not_depend_on_use_cow_images(tmp_path: pathlib.Path) -> None:
    options = {"DEFAULT": {"use_cow_images": "false"}, "libvirt": {"images_type": "qcow2"}}
    assert NovaHost(tmp_path / "nova", **options).settings.refusal is None


def test_paths_follow_substitutions_and_former_names(tmp_path: pathlib.Path) -> None:
    nova = NovaHost(tmp_path / "nova", DEFAULT={"my_ip": "10.1.2.3"})
    nova.configure(
        DEFAULT={"my_ip": "10.1.2.3", "instances_path": "$state_path/there"},
        image_cache={"subdirectory_name": "_base_$my_ip"},
    )
    assert nova.settings.base_directory == f"{nova.path}/there/_base_10.1.2.3"
    assert nova.settings.lock_directory == f"{nova.path}/there/locks"
    nova.configure(DEFAULT={"image_cache_subdirectory_name": "cached"})
    assert nova.settings.base_directory == f"{nova.instances}/cached"


def test_later_file_wins(tmp_path: pathlib.Path) -> None:
    nova = NovaHost(tmp_path / "nova")
    later = tmp_path / "nova-compute.conf"
    later.write_text("[libvirt]\nimages_type = rbd\n")
    assert nova_settings.read([str(nova.config), str(later)], []).refusal is not None
    assert nova_settings.read([str(later), str(nova.config)], []).refusal is not None
    nova.configure(libvirt={"images_type": "qcow2"})
    assert nova_settings.read([str(later), str(nova.config)], []).refusal is None


def test_configuration_directory_is_read(tmp_path: pathlib.Path) -> None:
    nova = NovaHost(tmp_path / "nova")
    directory = tmp_path / "nova.conf.d"
    directory.mkdir()
    (directory / "10-images.conf").write_text("[libvirt]\nimages_type = lvm\n")
    assert nova_settings.read([str(nova.config)], [str(directory)]).refusal is not None


def test_environment_of_the_agent_is_not_novas(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_LIBVIRT__IMAGES_TYPE", "rbd")
    assert NovaHost(tmp_path / "nova").settings.refusal is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[DEFAULT]\n", "neither"),
        ("[DEFAULT]\ninstances_path = relative\n", "absolute"),
        ("[DEFAULT]\nstate_path = /n\n[image_cache]\nsubdirectory_name =\n", "of its own"),
        ("[DEFAULT]\nstate_path = /n\n[image_cache]\nsubdirectory_name = locks\n", "of its own"),
        ("[DEFAULT]\ninstances_path = $nothing/i\n", "instances_path refers"),
        ("[DEFAULT]\nstate_path = /n\nuse_cow_images = perhaps\n", "use_cow_images"),
    ],
)
def test_wrong_configuration_says_what_and_where(
    tmp_path: pathlib.Path, text: str, reason: str
) -> None:
    path = tmp_path / "nova.conf"
    path.write_text(text)
    with pytest.raises(exception.ConfigurationError, match=reason) as failure:
        nova_settings.read([str(path)], [])
    assert "nova_config_file" in failure.value.hint


def test_malformed_file_is_not_quoted(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "nova.conf"
    path.write_text("[DEFAULT]\nsecret-without-a-name\n")
    with pytest.raises(exception.ConfigurationError, match="malformed") as failure:
        nova_settings.read([str(path)], [])
    assert "secret" not in str(failure.value)
    with pytest.raises(exception.ConfigurationError, match="cannot be read"):
        nova_settings.read([str(tmp_path / "absent")], [])


def test_signature_changes_with_the_file(nova: NovaHost) -> None:
    files = [str(nova.config), "/absent"]
    former = nova_settings.signature(files)
    assert nova_settings.signature(files) == former
    nova.configure(libvirt={"images_type": "rbd"})
    assert nova_settings.signature(files) != former
