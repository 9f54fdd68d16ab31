"""Nova's own code for base files, driven from outside: the counterpart of the image links.

Reads one JSON object per line (``call``, then its parameters) and answers each with one:
``result``, or ``error`` and ``kind``. The first call says which nova.conf to use, and which
directory stands for Glance: it has a raw file per image id; where ``<id>.gate`` exists, the
download waits until that is gone.

Everything below Glance and the database is Nova's: image back end, image cache manager, driver,
inspection, qemu-img with its limits, locks.
"""

import json
import os
import pathlib
import shutil
import sys
import threading
import time
import warnings
from typing import Any

warnings.simplefilter("ignore")

import nova.conf  # noqa: E402
import nova.privsep  # noqa: E402
from nova import exception  # noqa: E402
from nova.virt import images  # noqa: E402
from nova.virt.libvirt import driver, imagebackend, imagecache  # noqa: E402
from nova.virt.libvirt import utils as libvirt_utils  # noqa: E402

CONF = nova.conf.CONF


class Glance:
    """Glance as Nova calls it, from a directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self.downloads: list[str] = []

    def get(self, context: object, image_id: str, **_: object) -> dict[str, object]:
        self._file(image_id)
        return {"id": image_id, "disk_format": "raw"}

    def download(
        self, context: object, image_id: str, dest_path: str, trusted_certs: object = None
    ) -> None:
        source = self._file(image_id)
        self.downloads.append(image_id)
        gate = self._directory / f"{image_id}.gate"
        pathlib.Path(f"{gate}.reached").touch()
        while gate.exists():
            time.sleep(0.01)
        shutil.copyfile(source, dest_path)

    def _file(self, image_id: str) -> pathlib.Path:
        path = self._directory / image_id
        if not path.exists():
            raise exception.ImageNotFound(image_id=image_id)
        return path


class CacheManager(imagecache.ImageCacheManager):  # type: ignore[misc]
    """Nova's, told by the caller what the database would say."""

    def __init__(self, images_used: list[str], instances: list[str]) -> None:
        super().__init__()
        self._running = {
            "used_images": {image_id: (1, 0, []) for image_id in images_used},
            "instance_names": set(instances),
            "used_swap_images": set(),
            "used_ephemeral_images": set(),
        }

    def _list_running_instances(self, context: object, instances: object) -> dict[str, Any]:
        return self._running


class DriverHarness:
    """Calls that a test makes of this process."""

    def __init__(self) -> None:
        self._glance = Glance(pathlib.Path("/nowhere"))

    def use(self, configuration: str, glance: str) -> None:
        """Be the nova-compute of this configuration from now on."""
        CONF.reset()
        CONF(["--config-file", configuration], project="nova", default_config_dirs=[])
        self._glance = Glance(pathlib.Path(glance))
        images.IMAGE_API = self._glance

    def make_disk(
        self, image_id: str, instance: str, size: int | None = None, name: str = "disk",
        backend: str = "qcow2",
    ) -> dict[str, object]:  # fmt: skip
        """Make an instance's root disk as a boot, a rebuild or a resize does."""
        directory = os.path.join(CONF.instances_path, instance)
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, name)
        kind = imagebackend.Backend(CONF.use_cow_images).backend(backend)
        disk = kind(path=path)
        before = len(self._glance.downloads)
        disk.cache(
            fetch_func=libvirt_utils.fetch_image,
            context=None,
            filename=imagecache.get_cache_fname(image_id),
            image_id=image_id,
            size=size,
            trusted_certs=None,
        )
        return {"path": path, "downloads": len(self._glance.downloads) - before}

    def cache_image(self, image_id: str) -> bool:
        """Do what 'openstack aggregate cache image' has a host do; True: it downloaded."""
        return bool(driver.LibvirtDriver.cache_image(None, None, image_id))

    def manage_cache(self, used: list[str], instances: list[str]) -> None:
        """Run the image cache manager once."""
        CacheManager(used, instances).update(None, [])

    def disk_usage(self) -> int:
        """Return what the resource tracker reserves for the cache, bytes."""
        return int(imagecache.ImageCacheManager().get_disk_usage())

    def inspect(self, path: str) -> str:
        """Inspect a base file as before each boot."""
        inspector = images.get_image_format(path)
        inspector.safety_check()
        return str(inspector)

    def settings(self) -> dict[str, str]:
        """Return what ACStor reads of the configuration, as Nova sees it."""
        backend = imagebackend.Backend(CONF.use_cow_images).backend()
        return {
            "instances_path": CONF.instances_path,
            "base_directory": imagecache.ImageCacheManager().cache_dir,
            "lock_directory": imagecache.ImageCacheManager().lock_path,
            "backend": backend.__name__,
        }

    def base_name(self, image_id: str) -> str:
        """Return the name of an image's base file."""
        return str(imagecache.get_cache_fname(image_id))


def answer(harness: DriverHarness, request: dict[str, Any]) -> None:
    number = request.pop("number")
    try:
        reply = {"result": getattr(harness, request.pop("call"))(**request)}
    except Exception as error:
        reply = {"error": str(error), "kind": type(error).__name__}
    print(json.dumps({"number": number, **reply}), flush=True)


def main() -> None:
    nova.privsep.sys_admin_pctxt.set_client_mode(False)
    harness = DriverHarness()
    print(json.dumps({"number": 0, "result": "ready"}), flush=True)
    for line in sys.stdin:
        threading.Thread(target=answer, args=(harness, json.loads(line))).start()


if __name__ == "__main__":
    main()
