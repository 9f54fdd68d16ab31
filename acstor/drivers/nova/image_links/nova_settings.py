"""Nova's settings on this host that the image links depend on.

They are read from the files that nova-compute reads, by oslo.config, with the names, defaults and
substitutions that Nova has (Nova 34, ``nova/conf``), and without importing Nova: the agent need
not be installed where Nova is, and nothing of Nova runs in it.
"""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from oslo_config import cfg
from oslo_utils import netutils

from acstor import exception

_SUBDIRECTORY_DEFAULT = "_base"
_LOCKS = "locks"
PINS_DIRECTORY = ".acstor/pins"
"""Directory of pins below ``instances_path``; Nova passes over it."""

Signature = tuple[tuple[str, int, int, int], ...]
"""Identity of the files' content: path, inode, size and time of the last change, ns, of each."""


@dataclass(frozen=True)
class NovaSettings:
    """Settings of one nova-compute that the image links depend on."""

    instances_path: str
    base_directory: str
    """Nova's directory of base files (``<instances_path>/<[image_cache] subdirectory_name>``)."""
    refusal: str | None
    """Reason for which links must not be planted under these settings; None: they may."""

    @property
    def lock_directory(self) -> str:
        """Directory in which Nova keeps the locks of base files."""
        return os.path.join(self.instances_path, _LOCKS)

    @property
    def pins_directory(self) -> str:
        """Directory in which disks are pinned that versions are to be taken of."""
        return os.path.join(self.instances_path, PINS_DIRECTORY)

    def base_path(self, name: str) -> str:
        """Return the path of a base file."""
        return os.path.join(self.base_directory, name)


def read(files: Sequence[str], directories: Sequence[str] | None = None) -> NovaSettings:
    """Read Nova's settings.

    :param files: as nova-compute is given them with ``--config-file``; later ones win.
    :param directories: as with ``--config-dir``; None: those that oslo.config finds for
        nova-compute, such as ``/etc/nova/nova.conf.d``.
    :raises ConfigurationError: when a file cannot be read, or does not say where instances are.
    """
    conf = cfg.ConfigOpts()
    _register(conf)
    if directories is None:
        directories = cfg.find_config_dirs("nova", "nova-compute")
    try:
        conf(
            [],
            project="nova",
            prog="nova-compute",
            default_config_files=list(files),
            default_config_dirs=list(directories),
            # The environment is that of the agent, not of nova-compute.
            use_env=False,
        )
        return _settings(conf)
    except cfg.ConfigFilesNotFoundError as error:
        raise _unreadable(f"file {', '.join(error.config_files)} cannot be read") from error
    except cfg.ConfigFilesPermissionDeniedError as error:
        names = ", ".join(error.config_files)
        raise _unreadable(f"file {names} may not be read by this user") from error
    except cfg.ConfigFileParseError as error:
        # Its text quotes the line, which may hold a password.
        raise _unreadable(f"file {error.config_file} is malformed") from error
    except cfg.NoSuchOptError as error:
        # So says oslo.config of an option whose value cannot be substituted.
        raise _unreadable(
            f"{error.opt_name} refers to an option that is not set or that ACStor does not know"
        ) from error
    except (cfg.Error, ValueError) as error:
        raise _unreadable(exception.one_line(error)) from error


def signature(files: Sequence[str]) -> Signature:
    """Return what changes when one of the files does; a file that is missing counts as such."""
    found = []
    for path in files:
        try:
            status = os.stat(path)
        except OSError:
            found.append((path, 0, 0, 0))
        else:
            found.append((path, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _register(conf: cfg.ConfigOpts) -> None:
    """Register what is read, and what the values of that may refer to."""
    conf.register_opts(
        [
            # Nova's default of state_path is where its modules are installed; nobody runs it so.
            cfg.StrOpt("pybasedir"),
            cfg.StrOpt("bindir"),
            cfg.StrOpt("state_path"),
            cfg.StrOpt("instances_path"),
            cfg.StrOpt("my_ip", default=netutils.get_my_ipv4()),
            cfg.StrOpt("host", default=socket.gethostname()),
            cfg.StrOpt("compute_driver"),
            cfg.BoolOpt("use_cow_images", default=True),
            cfg.BoolOpt("force_raw_images", default=True),
        ]
    )
    conf.register_opts(
        [cfg.StrOpt("images_type", default="default"), cfg.StrOpt("virt_type", default="kvm")],
        group="libvirt",
    )
    conf.register_opts(
        [
            cfg.StrOpt(
                "subdirectory_name",
                default=_SUBDIRECTORY_DEFAULT,
                deprecated_name="image_cache_subdirectory_name",
                deprecated_group="DEFAULT",
            )
        ],
        group="image_cache",
    )
    conf.register_opts(
        [cfg.BoolOpt("disable_process_locking", default=False)], group="oslo_concurrency"
    )


def _settings(conf: cfg.ConfigOpts) -> NovaSettings:
    instances_path = conf.instances_path
    if not instances_path:
        if not conf.state_path:
            raise _unreadable("neither [DEFAULT] instances_path nor state_path is set")
        instances_path = os.path.join(conf.state_path, "instances")
    if not os.path.isabs(instances_path):
        raise _unreadable(f"[DEFAULT] instances_path = {instances_path!r} is no absolute path")
    name = conf.image_cache.subdirectory_name
    base_directory = os.path.normpath(os.path.join(instances_path, name))
    lock_directory = os.path.join(os.path.normpath(instances_path), _LOCKS)
    if base_directory in (os.path.normpath(instances_path), lock_directory):
        raise _unreadable(f"[image_cache] subdirectory_name = {name!r} is no directory of its own")
    return NovaSettings(os.path.normpath(instances_path), base_directory, _refusal(conf))


def _refusal(conf: cfg.ConfigOpts) -> str | None:
    """Return why a link would not do what a base file does; ``doc/.../image-links.rst`` says more.

    ``preallocate_images``, ``disable_deep_image_inspection`` and
    ``reserve_disk_resource_for_image_cache`` are fine: they concern the overlay, less reading of
    the base, and the bytes that the link's target says it occupies.
    """
    images_type = conf.libvirt.images_type
    rules = (
        (
            bool(conf.compute_driver) and not conf.compute_driver.startswith("libvirt."),
            f"[DEFAULT] compute_driver = {conf.compute_driver} has no image cache of this kind",
        ),
        (
            conf.libvirt.virt_type not in ("kvm", "qemu"),
            f"[libvirt] virt_type = {conf.libvirt.virt_type} does not open images by QEMU",
        ),
        (
            images_type not in ("default", "qcow2"),
            f"[libvirt] images_type = {images_type} copies base files instead of using them; "
            "only qcow2 can use links",
        ),
        (
            images_type == "default" and not conf.use_cow_images,
            "[DEFAULT] use_cow_images = false copies base files instead of using them",
        ),
        (
            not conf.force_raw_images,
            "[DEFAULT] force_raw_images = false keeps base files of Nova's own in other formats, "
            "and an instance that moves needs the same format on every host",
        ),
        (
            conf.oslo_concurrency.disable_process_locking,
            "[oslo_concurrency] disable_process_locking = true: Nova takes no locks on base files",
        ),
    )
    return next((reason for applies, reason in rules if applies), None)


def _unreadable(reason: str) -> exception.ConfigurationError:
    return exception.ConfigurationError(
        f"Nova's configuration: {reason}",
        hint="name the files of nova-compute with [image_links] nova_config_file",
    )
