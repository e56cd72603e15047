"""The command line of lemmaformer: its groups, and `main`.

Commands live in `lemmaformer.commands` and are loaded when they are called, so that help answers at once. Exit codes: 0 done and holds,
1 a claim is violated, 2 bad input (one line on stderr), 3 undecided.
"""

import os
import sys
from importlib import import_module

import click

from analyzer.errors import LemmaformerError, Refusal

COMMANDS = {
    "demo": ("demo:demo", "The tour, in half a minute."),
    "theorems": ("theorems:theorems", "Every theorem and limit: statement, proof."),
    "bound": ("theorems:bound", "What a theorem promises at given sizes."),
    "build": ("build:build", "The network of a theorem's proof, certified."),
    "plan": ("plan:plan", "Depth against width: every theorem that applies."),
    "verify": ("networks:verify", "Certify a bundle from its weights alone."),
    "run": ("networks:run", "Evaluate a network on an array of tokens."),
    "break": ("networks:break_command", "Change a weight: what does the certificate say?"),
    "check": ("check:check", "Your own formula: holds, refuted, undecided."),
    "limits": ("limits:limits", "What no network of a class can do."),
    "train": ("networks:train", "Train a network on a target."),
    "import": ("networks:import_command", "Weights that were trained elsewhere."),
    "compare": ("networks:compare", "Constructed and trained networks side by side."),
    "spectrum": ("networks:spectrum", "Singular values of attention logits on data."),
    "report": ("pages:report", "A page of a network, certificate or comparison."),
    "explore": ("pages:explore", "A page with sliders: lag, heads, bits, bank."),
    "export": ("exports:export_command", "A network for PyTorch, ONNX, JAX or numpy."),
    "gallery": ("exports:gallery", "One certified network per theorem, explained."),
    "doctor": ("doctor:doctor", "Does this device round as certificates assume?"),
    "sweep": ("sweeps:sweep", "A command over a grid of jobs, resumable."),
    "experiment": ("experiment:experiment", "Published experiments, repeated."),
}
"""Where a command lives, and what it is in a few words."""


class _Lazy(click.Group):
    """A group that knows what its commands are called, and loads one when it is needed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, command = COMMANDS[name][0].partition(":")
        found: click.Command = getattr(import_module(f"lemmaformer.commands.{module}"), command)
        return found

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.group(cls=_Lazy, epilog="Example: lemmaformer build fixed --lags 2,5 --out net && lemmaformer verify net  (6 seconds)")
@click.version_option(package_name="lemmaformer")
def cli() -> None:
    """Theorems about Transformers as running, certified code.

    Papers prove that Transformers can remember given tokens; lemmaformer builds the networks of those proofs and certifies their
    worst-case error: witness ≤ certified ≤ bound. Python has the same: import lemmaformer as lf.

    \b
    Words: a head's relative positions (rpe) say how its weights fall with the
    distance, lin e^{-ps} or log s^{-p}; dp-free heads read positions only, dp
    heads compare tokens by dot products under a softmax, nf heads do without
    the softmax, tmx heads read a lag as 't minus x'; a bank is a choice of
    heads for a memory; a bundle is a folder with a network and its card.
    """


def main() -> None:
    """Entry point: our errors and usage errors become one line on stderr and exit code 2."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):  # our programs compile in less than the second from which on JAX would keep them
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    try:
        cli(prog_name="lemmaformer", standalone_mode=False)
    except click.ClickException as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # a group without a command: its help is the answer
            click.echo(message, err=True)
            sys.exit(2)
        _fail(message)
    except click.Abort:
        _fail("interrupted")
    except Refusal as refusal:
        from lemmaformer.commands.flags import flag

        _fail(refusal.text(flag))
    except LemmaformerError as error:
        _fail(str(error))
    except (OSError, MemoryError, RecursionError) as error:
        _fail(f"{type(error).__name__}: {str(error)[:120]}")


def _fail(message: str) -> None:
    click.echo(f"lemmaformer: {' '.join(message.split())}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
