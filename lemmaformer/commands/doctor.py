"""`doctor`: the arithmetic of this device."""

import click

from lemmaformer.commands.flags import Answer, answers


@click.command(epilog="Example: lemmaformer doctor  (10 seconds)")
@answers
def doctor() -> Answer:
    """Does this device round as certificates assume?

    Float certificates count roundings under hypotheses about the device: how
    sums, products, quotients, products of matrices, recurrences and our
    exponential round. Each is held against exact arithmetic on directed
    operands; the answer says which certificates apply here. The exit code is 1
    if a hypothesis is violated.
    """
    import lemmaformer as lf

    return lf.doctor()
