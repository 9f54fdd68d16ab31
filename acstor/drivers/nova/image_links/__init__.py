"""Links in Nova's image cache that make stock Nova find the images of this host there.

Nova looks for an image's base file at ``<instances_path>/_base/<sha1(image id)>`` before it
downloads anything. A symbolic link there, to the image's file in the data plane's mount, is a base
file to Nova. Where the link leads nowhere Nova downloads as it always did, and its file takes the
link's place.
"""
