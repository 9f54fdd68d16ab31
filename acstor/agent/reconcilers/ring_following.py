"""Giving the published ring to the data plane."""

import logging
import os

from acstor.agent.handing_over import hand_over
from acstor.cluster.ring.published_ring import RingReference
from acstor.control.client import AdminClient

LOG = logging.getLogger(__name__)


class RingFollower:
    """Keeps the data plane at the published generation.

    :param directory: where the ring's file is put for the data plane to read.
    """

    def __init__(self, reference: RingReference, data_plane: AdminClient, directory: str) -> None:
        self._reference = reference
        self._data_plane = data_plane
        self._path = os.path.join(directory, "ring.bin")

    def reconcile(self, generation_in_use: int | None) -> int | None:
        """Bring the data plane to the published ring where it is behind.

        :param generation_in_use: of the data plane; None: it has no ring.
        :returns: the generation that the data plane uses now, None where there is none.
        :raises AcstorError: when the origin, its ring or the data plane is not as it should be;
            the data plane keeps the ring that it has.
        """
        published = self._reference.current()
        if published is None:
            return generation_in_use
        generation = published.ring.generation
        if generation_in_use is not None and generation_in_use >= generation:
            return generation_in_use
        hand_over(self._data_plane, self._path, published.content)
        self._data_plane.call("ring.set", path=self._path)
        LOG.info("the data plane uses ring generation %d", generation)
        return generation
