"""Configuration files: what is written is what oslo.config reads; overrides."""

import pathlib

import pytest
from oslo_config import cfg

from testbed.onebox.configuration.writer import Override, render, write


def test_oslo_config_reads_what_is_rendered(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "nova.conf"
    path.write_text(
        render({
            "DEFAULT": {"host": "compute1"},
            "filter_scheduler": {
                "available_filters": ["a.all", "b.Ours"], "enabled_filters": "X,Y",
            },
        })
    )  # fmt: skip
    conf = cfg.ConfigOpts()
    conf.register_opt(cfg.StrOpt("host"))
    conf.register_opts(
        [cfg.MultiStrOpt("available_filters"), cfg.ListOpt("enabled_filters")],
        group="filter_scheduler",
    )
    conf(["--config-file", str(path)], project="nova")
    assert conf.host == "compute1"
    assert conf.filter_scheduler.available_filters == ["a.all", "b.Ours"]
    assert conf.filter_scheduler.enabled_filters == ["X", "Y"]


def test_write_tells_a_change_and_keeps_the_inode(tmp_path: pathlib.Path) -> None:
    """A file that is mounted on a host's /etc cannot be replaced by another one."""
    path = tmp_path / "etc" / "hosts"
    assert write(path, "one\n", 0o640) is False
    inode = path.stat().st_ino
    assert path.stat().st_mode & 0o777 == 0o640
    assert write(path, "one\n") is False
    assert write(path, "two\n") is True
    assert (path.read_text(), path.stat().st_ino) == ("two\n", inode)
    assert [entry.name for entry in path.parent.iterdir()] == ["hosts"]


def test_override_is_parsed_up_to_its_first_equals_sign() -> None:
    parsed = Override.parse("nova-compute:libvirt.images_type=a=b")
    assert parsed == Override("nova-compute", "libvirt", "images_type", "a=b")


@pytest.mark.parametrize(
    "text",
    ["", "nova", "nova:group=1", "nova.group.option=1", ":g.o=1", "nova:g.=1", "nova:.o=1",
     "nova:g.o", "nova:g.o=1\n[other]"],
)  # fmt: skip
def test_anything_else_is_no_override(text: str) -> None:
    with pytest.raises(ValueError, match=r"FILE:GROUP\.OPTION=VALUE"):
        Override.parse(text)
