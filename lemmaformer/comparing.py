"""Comparison from the outside: one target, names for columns, sequences long enough."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.errors import InputError
from analyzer.targets.files import target_from_dict
from analyzer.targets.protocol import Target
from constructions.files.card import Files, read_files
from lemmaformer.files import load
from lemmaformer.options import MAX_COMPARED, MAX_COMPARED_LENGTH, MAX_TOKENS, Compare
from lemmaformer.progress import stepping
from lemmaformer.results.experiments import Comparison

if TYPE_CHECKING:
    from lemmaformer.network import Network


def compared(given: "Sequence[Network | str | Path]", target: Target | None, options: Compare) -> Comparison:
    """Networks, or bundles by their folders, side by side on one target."""
    if not 2 <= len(given) <= MAX_COMPARED:
        raise InputError(f"{len(given)} network{'' if len(given) == 1 else 's'} to compare; give 2 to {MAX_COMPARED}")
    places = [Path(one) if isinstance(one, str | Path) else None for one in given]
    files = [None if place is None else read_files(place) for place in places]  # all of them, before JAX is loaded for the first
    targets = [_target_of(one, found) for one, found in zip(given, files, strict=True)]
    common = common_target(targets, names_of(places)) if target is None else target
    if options.tokens is not None and (common.alphabet is not None or common.length is not None):
        raise InputError("tokens is for targets without an alphabet, whose tokens lie in [-1, 1]")
    first = common.settled
    if common.length is not None and options.length not in (None, common.length):
        raise InputError(f"this coupling has sequences of {common.length} tokens, not {options.length}")
    if not first < (options.length or MAX_COMPARED_LENGTH):
        raise InputError(f"the target looks {first} tokens back; length must be larger, and is {MAX_COMPARED_LENGTH} at most")
    networks = [load(one) if isinstance(one, str | Path) else one for one in given]
    for name, network in zip(names_of(places), networks, strict=True):
        if network.transformer.dim != common.dim:
            raise InputError(f"{name} reads tokens of dimension {network.transformer.dim}, the target has {common.dim}")
        if network.transformer.outputs != 1:
            raise InputError(f"{name} has {network.transformer.outputs} outputs; networks of one output are compared")
    from verify.compare.side_by_side import ComparisonProtocol, compare, derived_length

    derived = derived_length(common, [network.transformer for network in networks])
    count = options.length or min(MAX_COMPARED_LENGTH, derived)
    if options.sequences * count * common.dim > MAX_TOKENS:
        raise InputError(f"{options.sequences} sequences of {count} tokens are more than {MAX_TOKENS} numbers; give fewer or shorter ones")
    drawn = "letters" if common.alphabet is not None else options.tokens or "uniform"
    protocol = ComparisonProtocol(options.sequences, count, first, options.seed, drawn)
    with stepping("comparing") as step:
        columns = [(name, network.bundle) for name, network in zip(names_of(places), networks, strict=True)]
        return Comparison(compare(columns, common, protocol, step))


def _target_of(one: "Network | str | Path", files: Files | None) -> Target | None:
    """The target of a network, or the one that a bundle's card names."""
    if files is None:
        return None if isinstance(one, str | Path) else one.target
    data = files.card.get("target")
    return None if data is None else target_from_dict(data, f"{files.path}/card.json")


def common_target(targets: Sequence[Target | None], names: Sequence[str]) -> Target:
    """The one target that all networks with a target have."""
    named = [(name, target) for name, target in zip(names, targets, strict=True) if target is not None]
    if not named:
        raise InputError("none of these networks names a target; give a target")
    first = named[0][1]
    for name, target in named[1:]:
        if target.describe() != first.describe():
            raise InputError(f"{name} has another target than {named[0][0]}; give a target to measure all against one")
    return first


def names_of(places: Sequence[Path | None]) -> list[str]:
    """Names of folders; paths where names repeat, numbered where paths do; numbers for networks that have no place.

    `target` is the target's.
    """
    plain = [str(k) if place is None else place.resolve().name for k, place in enumerate(places, start=1)]
    names: list[str] = []
    for place, name in zip(places, plain, strict=True):
        wanted = name if place is None or (plain.count(name) == 1 and name != "target") else str(place)
        repeated = 0 if place is None else sum(other == place for other in places[: len(names)])
        names.append(f"{wanted} ({repeated + 1})" if repeated or wanted == "target" else wanted)
    return names
