"""The two ways in which an answer can fail to exist."""


class LemmaformerError(Exception):
    """Base of our own errors; the message is one line that names the input and what would help."""


class InputError(LemmaformerError):
    """The input is malformed, out of range, or not of the kind that was asked for."""


class Refusal(LemmaformerError):
    """The input is well formed, but no network of the requested class and size can do what is asked."""
