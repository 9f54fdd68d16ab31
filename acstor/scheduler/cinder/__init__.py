"""What cinder-scheduler loads: a weigher of back-ends by the images that they have."""
