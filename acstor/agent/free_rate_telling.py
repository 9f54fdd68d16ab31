"""Telling the data plane what is free of its host's links."""

import logging

from acstor import exception
from acstor.control import protocol
from acstor.control.client import AdminClient
from acstor.telemetry import free_rates
from acstor.telemetry.traffic import ExtraTraffic

LOG = logging.getLogger(__name__)

VALID_INTERVALS = 3
"""Measurements within which a rate is to be told again before the data plane forgets it."""
VALID_MIN = 5.0
"""Shortest time for which a rate holds, seconds: an agent that is restarted is back by then."""


class FreeRateTelling:
    """Tells the data plane each measurement, for as long as a few of them take.

    An agent that dies is not missed: the data plane forgets what it was told, and goes by what it
    sees itself, as one that is not told anything.

    :param data_plane: of this host.
    :param interval: seconds between two measurements.
    """

    def __init__(self, data_plane: AdminClient, interval: float) -> None:
        self._data_plane = data_plane
        valid = max(VALID_MIN, VALID_INTERVALS * interval)
        self._valid = min(valid, protocol.LINK_RATE_VALID_MAX)
        self._is_missed = False

    def tell(self, traffic: ExtraTraffic) -> None:
        """Tell what is free beside this traffic; nothing where that is not known.

        What the data plane was told before holds on until its time is over.
        """
        rates = free_rates.of(traffic)
        if rates == free_rates.FreeRates():
            return
        try:
            self._data_plane.call(
                "link.free",
                in_bytes_per_s=_bounded(rates.inwards),
                out_bytes_per_s=_bounded(rates.outwards),
                valid_s=self._valid,
            )
        except exception.UnavailableError:
            return  # the next pass says so
        except exception.AcstorError as error:
            # An older data plane has no such method; it goes by what it sees.
            if not self._is_missed:
                LOG.info("the data plane is not told what is free of its link: %s", error)
            self._is_missed = True
            return
        self._is_missed = False


def _bounded(rate: int | None) -> int | None:
    return None if rate is None else min(rate, protocol.LINK_RATE_MAX)
