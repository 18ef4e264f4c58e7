"""What can go wrong with an embedded server, in words that say what to do next."""


class SandboxError(Exception):
    """An embedded server could not do what was asked; the message is one line for people."""


class SandboxUnavailable(SandboxError):
    """This machine or environment cannot run the embedded server; the message says what to install."""


class SandboxStartFailed(SandboxError):
    """The embedded server did not get ready; the message carries the last lines of its log."""
