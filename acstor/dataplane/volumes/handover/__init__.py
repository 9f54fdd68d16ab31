"""Live migration: a volume follows its guest from one host to the other.

Both hosts have the volume open, one owns it. From then on the owner pushes what it has and folds
its log while its guest writes on, so that little is left whenever somebody asks. The other, the
standby, lets requests wait; the first of them makes it ask for the volume, in the record. The owner
sees that; its requests wait, too, while it pushes what is left, releases the volume and becomes the
standby, and whoever asked becomes the owner. So each request is answered by an owner, with
everything that any owner acknowledged, whichever guest it comes from. Requests wait as long as it
takes: an owner with much to push makes its own guest wait for a moment only, and an origin that is
away makes everybody wait.
"""
