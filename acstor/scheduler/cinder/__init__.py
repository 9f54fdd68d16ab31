"""Plug-in of cinder-scheduler: a weigher of back-ends by the images that they have."""
