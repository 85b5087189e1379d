"""The one exception that means "the input is bad", as opposed to "the program is wrong"."""


class InputError(ValueError):
    """Bad input; the message is one sentence that names the input, the problem and the remedy."""
