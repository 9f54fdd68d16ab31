"""All services that flows use."""

import dataclasses

from acstor.versions.services.captures import HostCaptures
from acstor.versions.services.compute import Compute
from acstor.versions.services.image_store import ImageStore
from acstor.versions.services.images import Images
from acstor.versions.services.preloads import HostPreloads
from acstor.versions.services.restores import HostRestores


@dataclasses.dataclass(frozen=True, slots=True)
class Services:
    """Services of one worker. Each has a double in memory, and fails as it is told in tests."""

    captures: HostCaptures
    compute: Compute
    images: Images
    image_store: ImageStore
    preloads: HostPreloads
    restores: HostRestores
