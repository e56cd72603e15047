"""One certified network per theorem, with its mechanism as data: ground truth for interpretability."""

import json
from pathlib import Path
from typing import Any, cast

from analyzer.errors import InputError
from analyzer.statements.registry import THEOREMS
from analyzer.statements.theorem import Case
from analyzer.targets.files import target_from_dict
from lemmaformer.results.base import Plain, Result

INDEX, MECHANISM = "gallery.json", "mechanism.json"


class Gallery(Result):
    """Networks that were built, one per theorem: sizes, chain, and how many heads have which role."""

    shown_by = "networks:show_gallery"

    @property
    def networks(self) -> list[Plain]:
        """One row per theorem."""
        return cast("list[Plain]", self.data["networks"])

    @property
    def holds(self) -> bool:
        return all(row["verdict"] in ("holds", "vacuous") for row in self.networks)

    def _brief(self) -> str:
        return f" of {len(self.networks)} networks"


def gallery(out: str | Path, *, only: tuple[str, ...] | None = None) -> Gallery:
    """Build and certify the first case of every theorem that builds networks, or of those named, and write them into a new folder.

    `out` gets one folder per theorem, ID/network, a bundle, and ID/mechanism.json, what its slots hold and what every head and neuron does;
    and gallery.json, which lists them. It appears whole or not at all.

    >>> import lemmaformer as lf
    >>> found = lf.gallery("gallery", only=("thm-3.1",))
    >>> found.networks[0]["theorem"], found.networks[0]["roles"]
    ('thm-3.1', {'extract': 4})
    """
    from constructions.files.card import check_new_folder, new_folder
    from lemmaformer.progress import counting

    check_new_folder(Path(out))
    built = {name: theorem for name, theorem in THEOREMS.items() if theorem.build is not None and theorem.cases}
    for name in only or ():
        if name not in built:
            raise InputError(f"{name[:40]!r} is no theorem that builds networks; choose from {', '.join(built)}")
    chosen = list(dict.fromkeys(only)) if only else list(built)
    rows: list[Plain] = []
    with new_folder(Path(out)) as place, counting("building and certifying", len(chosen)) as done:
        for name in chosen:
            rows.append(_kept(name, built[name].cases[0], place / name))
            done()
        (place / INDEX).write_text(json.dumps({"networks": rows}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return Gallery({"networks": rows, "out": str(out)})


def _kept(name: str, case: Case, place: Path) -> Plain:
    """Build and certify one network, write it with its mechanism, and say what it is."""
    from lemmaformer.api import build

    options: dict[str, Any] = dict(case.options)
    net = build(target_from_dict(dict(case.target), f"the case of {name}"), theorem=name, **options)
    place.mkdir()
    net.save(place / "network")
    mechanism: dict[str, Any] = net.mechanism
    (place / MECHANISM).write_text(json.dumps(mechanism, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    certificate, roles = net.certificate, [head["role"] for layer in mechanism["layers"] for head in layer["heads"]]
    return {
        "theorem": name,
        "target": None if net.target is None else net.target.description,
        "dtype": net.dtype,
        "sizes": net.sizes,
        "witness": certificate.witness,
        "certified": certificate.certified,
        "bound": certificate.bound,
        "verdict": certificate.verdict.value,
        "roles": {role: roles.count(role) for role in dict.fromkeys(roles)},
    }
