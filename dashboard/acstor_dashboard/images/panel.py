"""Panel of images, in the dashboard of administrators."""

from django.utils.translation import gettext_lazy as _

from acstor_dashboard.panel_base import PermittedPanel


class Images(PermittedPanel):
    """Images of the cloud, and where they are cached."""

    name = _("Cached Images")
    slug = "acstor_images"
    rules = ("images:list", "preloads:list")
