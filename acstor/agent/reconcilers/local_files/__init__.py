"""Local files: images that are whole on a host, out of our path for guests that start from then on.

An image that this host keeps whole is written once as a plain raw file beside Nova's base files,
every chunk compared with the manifest, and the image's link is moved to it. Nothing of ours is in
the way of a guest that opens it: no FUSE, no data plane, no agent.
"""
