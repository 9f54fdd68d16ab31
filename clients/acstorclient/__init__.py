"""Client of ACStor's API: resources for openstacksdk, commands for the OpenStack client.

``acstorclient.service.attach`` gives a connection of openstacksdk the attribute ``acstor``.
"""
