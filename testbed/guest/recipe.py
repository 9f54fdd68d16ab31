"""Recipe of the demo's guest; its hash names the built image in the cache."""

import dataclasses
import hashlib
import json
import pathlib

FILES = pathlib.Path(__file__).parent / "files"

#: Raise it when the way of building changes in a way that the recipe's fields do not show.
RECIPE_VERSION = 2


@dataclasses.dataclass(frozen=True)
class GuestRecipe:
    """A Debian guest: packages, size of the disk, what is written into it."""

    suite: str = "bookworm"
    mirror: str = "http://deb.debian.org/debian"
    packages: tuple[str, ...] = (
        "systemd-sysv",
        "udev",
        "dbus",
        "openssh-server",
        "nginx-light",
        "iproute2",
        "kmod",
        "linux-image-cloud-amd64",
        "initramfs-tools",
        "zstd",
    )
    disk_size_bytes: int = 2 << 30
    hostname: str = "acstor-guest"
    #: Tree whose digest the guest prints on request.
    content_tree: str = "/usr/bin"
    #: Fixed, so that the same files give the same image.
    file_system_uuid: str = "61637374-6f72-4775-8573-740000000001"

    def key(self) -> str:
        """Return 16 hex digits that differ where the built image may differ."""
        digest = hashlib.sha256(
            json.dumps([RECIPE_VERSION, dataclasses.asdict(self)], sort_keys=True).encode()
        )
        for path in sorted(FILES.iterdir()):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]

    def customize_hooks(self) -> list[str]:
        """Return what is done in the root (``"$1"``) after the packages, as lines of sh."""
        unit = "acstor-content-check.service"
        return [
            f'install -m 755 {FILES}/acstor-content-check "$1/usr/local/sbin/"',
            f'install -m 644 {FILES}/{unit} "$1/etc/systemd/system/"',
            f'chroot "$1" systemctl enable {unit}',
            'echo "/dev/vda / ext4 errors=remount-ro 0 1" >"$1/etc/fstab"',
            # Eight emulated guests on two cores need longer than the 90 s of the default.
            'mkdir -p "$1/etc/systemd/system.conf.d"',
            'printf "[Manager]\\nDefaultDeviceTimeoutSec=600\\n" '
            '>"$1/etc/systemd/system.conf.d/acstor.conf"',
        ]
