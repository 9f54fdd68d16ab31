"""Check of the keys of signed images."""

import pathlib

import pytest
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from acstor.checks.image_signatures import check_signatures
from acstor.repository.signing import key_files
from tests.unit.checks.conftest import Configure, text
from tests.unit.repository.signing.keys import install


@pytest.fixture
def keys(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "keys"


def configured(configure: Configure, keys: pathlib.Path, *lines: str) -> cfg.ConfigOpts:
    return configure("\n".join(["", "[repository]", f"public_keys = {keys}", *lines, ""]))


def test_unsigned_images_are_a_warning(configure: Configure, keys: pathlib.Path) -> None:
    result = check_signatures(configured(configure, keys))
    assert result.code is Code.WARNING
    assert "can put another image in the place" in text(result)


def test_signed_images_are_fine(configure: Configure, keys: pathlib.Path) -> None:
    install(keys, 1, 2)
    result = check_signatures(configured(configure, keys, "require_signatures = true"))
    assert (result.code, text(result)) == (
        Code.SUCCESS, f"signed images only, by one of 2 keys in {keys}",
    )  # fmt: skip


def test_signatures_without_keys_are_a_failure(configure: Configure, keys: pathlib.Path) -> None:
    result = check_signatures(configured(configure, keys, "require_signatures = true"))
    assert result.code is Code.FAILURE
    assert "every image is refused" in text(result)


def test_damaged_key_is_a_failure(configure: Configure, keys: pathlib.Path) -> None:
    install(keys, 1, 2)
    (keys / "1.pub").write_bytes(b"")
    result = check_signatures(configured(configure, keys, "require_signatures = true"))
    assert result.code is Code.FAILURE
    assert text(result).startswith(f"{keys}/1.pub: ")


def test_key_that_signs_is_one_that_is_trusted(
    configure: Configure, keys: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    private, public = tmp_path / "signing.pem", tmp_path / "signing.pub"
    key = key_files.make_pair(str(private), str(public))
    conf = configured(configure, keys, "require_signatures = true", f"signing_key = {private}")
    result = check_signatures(conf)
    assert result.code is Code.WARNING
    assert key.id[:16] in text(result)
    install(keys)
    (keys / "signing.pub").write_bytes(public.read_bytes())
    assert check_signatures(conf).code is Code.SUCCESS
    private.chmod(0o644)
    result = check_signatures(conf)
    assert result.code is Code.FAILURE
    assert "others may read it" in text(result)
