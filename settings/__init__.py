"""What can be configured: the settings' types, and reading them from a file and the environment.

`schema` is the whole tree and imports nothing that reads; `load` reads; `reference` writes docs/configuration.md.
"""
