"""Victim of test_registration_kill.py: a registration or a collection, in its own process.

Usage: python -m tests.probe.registration_worker register|collect ORIGIN CACHE [FILE ID]
"""

import sys

from acstor.origin import opening
from acstor.repository.gc.garbage import Collector
from acstor.repository.images import registration
from acstor.repository.repository import Repository
from acstor.repository.source import base, raw


def main(arguments: list[str]) -> None:
    action, origin_url, cache_path, *rest = arguments
    repository = Repository.open(opening.open_origin(origin_url, 10.0))
    print("started", flush=True)
    if action == "collect":
        Collector(repository, "probe", 0.0).collect()
    else:
        path, image_id = rest
        source = raw.RawSource(base.SourceFile(path))
        settings = registration.Settings(pack_size=1 << 20, workers=2, cache_path=cache_path)
        request = registration.Request(image_id, "probe", source, "raw")
        registration.Registrar(repository, settings).register(request)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
