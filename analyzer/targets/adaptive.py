"""Adaptive targets: the lag of a memory is a function of tokens that are already known.

    y_t = f(x_t, x_{t−t_1}, …, x_{t−t_M}),     t_i = g_i(x_t and earlier memories), an integer ≥ 1

Who depends on whom is a graph without cycles; level(i) = 1 + the highest level of a parent, the current token has level 0. A continuous
integer-valued g on a connected set is constant, so tokens come from a finite alphabet, and suprema over tokens are maxima.

A `Situation` is one way in which the tokens that matter can be: two memories that point at the same position hold the same token, so
there are at most |alphabet|^{M+1} situations, and often fewer. All statements about lags are checked by going through them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.language.expressions import Sum, parse
from analyzer.language.reader import names_in
from analyzer.numbers.exact import from_text, nearest, rational, to_text
from analyzer.numbers.profiles import FUNCTIONS
from analyzer.targets.protocol import ArrayMap, LetterReading, RememberingTarget, as_tuple, half_spread, lagged_kernel, shortened
from analyzer.targets.readout import ReadOut, read_out

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np

MAX_ALPHABET = 256
MAX_MEMORIES = 16
MAX_DIM = 16
MAX_SITUATIONS = 20_000
"""Situations that we go through: a few seconds of exact arithmetic."""
MAX_LAG = 256
"""Longer lags have weights of more than ten thousand bits: they take minutes to certify."""
MAX_COMBINATIONS = 1 << 20
"""Entries of a lag table over all tokens of the parents: 4 MB."""
SAME_LETTER = 2.0**-24
"""Tokens so near to a letter count as this letter: it may have been rounded to float32."""

Token = tuple[fmpq, ...]


@dataclass(frozen=True)
class Memory:
    """A memory and its lag: an expression in x0 and other memories, or a table over the alphabet of one `parent`."""

    name: str
    lag: str | tuple[fmpq, ...]
    parent: str = "x0"

    def __post_init__(self) -> None:
        if not isinstance(self.lag, str):
            table = as_tuple(self.lag, f"the lag table of {self.name}", "one lag per token")
            object.__setattr__(self, "lag", tuple(exact_number(v, f"the lag table of {self.name}") for v in table))


@dataclass(frozen=True)
class Situation:
    """Alphabet indices of x0 and of every memory, and every memory's lag, in the target's order."""

    tokens: tuple[int, ...]
    lags: tuple[int, ...]


@dataclass(frozen=True)
class AdaptiveMemory(RememberingTarget):
    """y_t = f(x_t, memories) on a finite alphabet; `formula` None means the sum of the memories."""

    kind: ClassVar[str] = "adaptive"
    plural: ClassVar[str] = "adaptive memories"

    alphabet: tuple[Token, ...]
    memories: tuple[Memory, ...]
    formula: str | None = None

    def __post_init__(self) -> None:
        tokens = as_tuple(self.alphabet, "the alphabet", "tokens such as [-1], [1]")[: MAX_ALPHABET + 1]
        vectors = (as_tuple(token, "a token of the alphabet", "its coordinates") for token in tokens)
        object.__setattr__(self, "alphabet", tuple(tuple(exact_number(v, "the alphabet") for v in token) for token in vectors))
        object.__setattr__(self, "memories", as_tuple(self.memories, "memories", "one Memory for every memory"))
        if not 1 <= len(self.alphabet) <= MAX_ALPHABET:
            raise InputError(f"the alphabet has {len(self.alphabet)} tokens; give between 1 and {MAX_ALPHABET}")
        if not 1 <= self.dim <= MAX_DIM or any(len(token) != self.dim for token in self.alphabet):
            raise InputError(f"the alphabet's vectors must all have the same length, between 1 and {MAX_DIM}")
        for token in self.alphabet:
            if any(abs(v) > 1 for v in token):
                raise InputError(f"the alphabet holds {show_token(token)}; coordinates lie in [-1, 1]")
            if self.alphabet.count(token) > 1:
                raise InputError(f"the alphabet holds {show_token(token)} twice")
        if not 1 <= len(self.memories) <= MAX_MEMORIES:
            raise InputError(f"there are {len(self.memories)} memories; give between 1 and {MAX_MEMORIES}")
        for name in self.names:
            if re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,30}", name) is None or name in ("x0", *FUNCTIONS):
                raise InputError(f"{name[:40]!r} cannot be the name of a memory")
            if self.names.count(name) > 1:
                raise InputError(f"two memories are called {name!r}")
        for memory in self.memories:
            if not isinstance(memory.lag, str) and len(memory.lag) != len(self.alphabet):
                raise InputError(f"the lag table of {memory.name} has {len(memory.lag)} entries for {len(self.alphabet)} tokens")
        _ = self.levels, self.readout, self.situations

    @property
    def dim(self) -> int:
        return len(self.alphabet[0])

    @property
    def as_memory_target(self) -> "AdaptiveMemory":
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(memory.name for memory in self.memories)

    @property
    def description(self) -> str:
        return shortened(self.kind, self.names)

    @cached_property
    def settled(self) -> int:
        """The longest lag that occurs."""
        return max(max(situation.lags) for situation in self.situations)

    @cached_property
    def readout(self) -> ReadOut:
        return read_out(self.formula, self.names, self.dim)

    @cached_property
    def parents(self) -> dict[str, tuple[str, ...]]:
        """For every memory the slots that its lag reads, x0 first."""
        slots = ("x0", *self.names)
        result = {}
        for memory in self.memories:
            used = names_in(memory.lag, f"lag of {memory.name}") if isinstance(memory.lag, str) else [memory.parent]
            for name in used:
                if name not in slots:
                    raise InputError(f"the lag of {memory.name} uses {name[:40]!r}; the slots are {', '.join(slots)}")
            result[memory.name] = tuple(name for name in slots if name in used)
        return result

    @cached_property
    def graph(self) -> "nx.DiGraph":
        """Who reads whom: an edge from a memory to every slot that its lag depends on."""
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from(("x0", *self.names))
        graph.add_edges_from((name, parent) for name, parents in self.parents.items() for parent in parents)
        return graph

    @cached_property
    def levels(self) -> dict[str, int]:
        """1 + the highest level of a parent, where x0 has level 0; networkx finds cycles, which are refused by name."""
        import networkx as nx

        try:
            cycle = nx.find_cycle(self.graph)
        except nx.NetworkXNoCycle:
            levels = {"x0": 0}
            for name in reversed(list(nx.topological_sort(self.graph))):
                if name != "x0":
                    levels[name] = 1 + max((levels[parent] for parent in self.parents[name]), default=0)
            return {name: levels[name] for name in self.names}
        path = " → ".join([edge[0] for edge in cycle] + [cycle[0][0]])
        raise InputError(f"the lags depend on each other in a circle: {path}")

    @property
    def depth(self) -> int:
        """The number of levels."""
        return max(self.levels.values())

    def schedule(self, deep: bool) -> tuple[tuple[int, ...], ...]:
        """Which memories each attention layer extracts, as indices: one level after the other, or one memory after the other."""
        order = sorted(range(len(self.memories)), key=lambda k: self.levels[self.names[k]])
        if deep:
            return tuple((k,) for k in order)
        return tuple(tuple(k for k in order if self.levels[self.names[k]] == level) for level in range(1, self.depth + 1))

    def slot_index(self, name: str) -> int:
        """Position of a slot: 0 for x0, then the memories."""
        return 0 if name == "x0" else 1 + self.names.index(name)

    @cached_property
    def _expressions(self) -> dict[str, Sum]:
        slots = {name: k for k, name in enumerate(("x0", *self.names))}
        exact = [name for name, profile in FUNCTIONS.items() if profile.exactly(fmpq(0)) is not None]
        return {m.name: parse(m.lag, slots, self.dim, f"lag of {m.name}", exact) for m in self.memories if isinstance(m.lag, str)}

    def lag(self, k: int, known: Mapping[int, int]) -> int:
        """The lag of memory k when the slots hold the given tokens (slot index → alphabet index)."""
        memory = self.memories[k]
        if isinstance(memory.lag, str):
            zero = (fmpq(0),) * self.dim
            point = [v for slot in range(len(self.memories) + 1) for v in (self.alphabet[known[slot]] if slot in known else zero)]
            value = self._expressions[memory.name].at(point)
            assert value is not None  # the functions that lags may use are exact
        else:
            value = memory.lag[known[self.slot_index(memory.parent)]]
        if value.q != 1 or not 1 <= value <= MAX_LAG:
            shown = str(value) if len(str(value)) < 20 else "enormous"
            where = self.describe_tokens({slot: token for slot, token in known.items() if self._reads(k, slot)})
            raise InputError(f"the lag of {memory.name} is {shown}{where}; lags are whole numbers from 1 to {MAX_LAG}")
        return int(value.p)

    def _reads(self, k: int, slot: int) -> bool:
        return ("x0", *self.names)[slot] in self.parents[self.names[k]]

    def describe_tokens(self, known: Mapping[int, int]) -> str:
        """Text such as " at x0 = 1, m1 = -1"."""
        slots = ("x0", *self.names)
        parts = [f"{slots[slot]} = {show_token(self.alphabet[token])}" for slot, token in sorted(known.items())]
        return f" at {', '.join(parts)}" if parts else ""

    @cached_property
    def situations(self) -> tuple[Situation, ...]:
        """Every way in which the tokens that matter can be."""
        order = [k for level in self.schedule(deep=False) for k in level]
        lags: dict[tuple[int, tuple[int, ...]], int] = {}
        found: list[Situation] = []
        # known: slot → token; places: position → token; one entry per partial choice
        stack: list[tuple[dict[int, int], dict[int, int], dict[int, int]]] = []
        for token in reversed(range(len(self.alphabet))):
            stack.append(({0: token}, {0: token}, {}))
        while stack:
            known, places, chosen = stack.pop()
            if len(chosen) == len(order):
                found.append(Situation(tuple(known[s] for s in range(len(order) + 1)), tuple(chosen[k] for k in range(len(order)))))
                if len(found) > MAX_SITUATIONS:
                    raise InputError(
                        f"{len(self.alphabet)} tokens and {len(self.memories)} memories can occur in more than {MAX_SITUATIONS} ways, "
                        "too many to go through; use a smaller alphabet or fewer memories"
                    )
                continue
            k = order[len(chosen)]
            key = (k, tuple(known[s] for s in range(len(order) + 1) if s in known and self._reads(k, s)))
            if key not in lags:
                lags[key] = self.lag(k, known)
            lag = lags[key]
            options = [places[lag]] if lag in places else reversed(range(len(self.alphabet)))
            for token in options:
                stack.append(({**known, k + 1: token}, {**places, lag: token}, {**chosen, k: lag}))
        return tuple(found)

    def situation(self, sequence: Sequence[int], t: int) -> Situation | None:
        """What position t of a sequence of alphabet indices sees, or None if its lags reach before the start."""
        known, lags = {0: sequence[t]}, {}
        for k in (k for level in self.schedule(deep=False) for k in level):
            lags[k] = self.lag(k, known)
            if lags[k] > t:
                return None
            known[k + 1] = sequence[t - lags[k]]
        count = len(self.memories)
        return Situation(tuple(known[s] for s in range(count + 1)), tuple(lags[k] for k in range(count)))

    def combinations(self, slots: Sequence[int]) -> set[tuple[int, ...]]:
        """Letters of the slots in all situations."""
        return {tuple(situation.tokens[slot] for slot in slots) for situation in self.situations}

    def readings(self) -> tuple[LetterReading, ...]:
        """One for every situation."""
        return tuple(
            LetterReading(dict(zip((0, *s.lags), s.tokens, strict=True)), self.readout([arb(v) for v in self.point(s)]))
            for s in self.situations
        )

    def occurring(self, k: int) -> tuple[int, ...]:
        """The lags of memory k that occur, increasing."""
        return tuple(sorted({s.lags[k] for s in self.situations}))

    def lag_table(self, k: int) -> dict[tuple[int, ...], int]:
        """Lag of memory k for every combination of its parents' tokens that occurs."""
        slots = [self.slot_index(name) for name in self.parents[self.names[k]]]
        return {tuple(s.tokens[slot] for slot in slots): s.lags[k] for s in self.situations}

    def point(self, situation: Situation) -> list[fmpq]:
        """(x_t, memories) as one vector."""
        return [v for token in situation.tokens for v in self.alphabet[token]]

    def exact_value(self, tokens: "np.ndarray", t: int = -1) -> arb:
        """Tokens count as the letters next to them; refused where lags reach before the array."""
        import numpy as np

        letters = [int(letter) for letter in self.nearest_letters(tokens[: t % len(tokens) + 1], np)]
        situation = self.situation(letters, len(letters) - 1)
        if situation is None:
            raise InputError(f"sequences of {len(letters)} tokens are shorter than the target's lags")
        return self.readout([arb(v) for v in self.point(situation)])

    def constant_error(self, samples: "np.ndarray | None" = None) -> float:
        """Half the spread of f over all situations."""
        return half_spread([self.readout([arb(v) for v in self.point(s)]) for s in self.situations])

    def letters(self) -> "np.ndarray":
        """Whole tokens, (letters, d)."""
        import numpy as np

        return np.array([[nearest(v) for v in token] for token in self.alphabet])

    def outside_alphabet(self, tokens: "np.ndarray") -> int:
        """How many tokens are no letters, up to rounding to float32."""
        import numpy as np

        known = np.zeros(tokens.shape[:-1], dtype=bool)
        for letter in self.letters():
            known |= (np.abs(tokens - letter) <= SAME_LETTER).all(axis=-1)
        return int((~known).sum())

    def memory_values(self, xp: Any) -> ArrayMap:
        """Tokens (…, N, d) → (x_t, memories) as (…, N, coordinates); lags that reach before the array find the zero token."""
        return lambda tokens: self._followed(tokens, xp)[0]

    def lag_values(self, xp: Any) -> ArrayMap:
        """Tokens (…, N, d) → the lag of every memory, (…, N, M)."""
        return lambda tokens: self._followed(tokens, xp)[1]

    def _followed(self, tokens: Any, xp: Any) -> tuple[Any, Any]:
        """(x_t, memories) and lags: every memory's parents are looked up in its lag table, then its token is fetched."""
        import numpy as np

        letters = xp.concatenate([xp.asarray(self.letters(), tokens.dtype), xp.zeros((1, self.dim), tokens.dtype)])
        count, order = len(self.alphabet), range(len(self.memories))
        index = self.nearest_letters(tokens, xp)  # (…, N)
        steps = xp.arange(tokens.shape[-2])
        known: dict[int, Any] = {0: index}
        lags: dict[int, Any] = {}
        for k in (k for level in self.schedule(deep=False) for k in level):
            slots = [self.slot_index(name) for name in self.parents[self.names[k]]]
            if (count + 1) ** len(slots) > MAX_COMBINATIONS:
                raise InputError(f"the lag of {self.names[k]} depends on too many tokens at once for a table")
            table = np.ones([count + 1] * len(slots), dtype=np.int32)  # a parent before the array: any lag will do, nothing is there
            for tokens_of_parents, lag in self.lag_table(k).items():
                table[tokens_of_parents] = lag
            lags[k] = xp.asarray(table)[tuple(known[s] for s in slots)] + xp.zeros_like(index)
            place = steps - lags[k]
            fetched = xp.take_along_axis(index, xp.clip(place, 0, None), axis=-1)
            known[k + 1] = xp.where(place >= 0, fetched, count)
        seen = xp.concatenate([letters[known[s]] for s in range(len(self.memories) + 1)], axis=-1)
        return seen, xp.stack([lags[k] for k in order], axis=-1)

    def mean_kernel(self, tokens: "np.ndarray", slopes: "np.ndarray") -> "np.ndarray":
        """Lags are held where they are: they are constant almost everywhere."""
        import numpy as np

        return lagged_kernel(self.lag_values(np)(tokens)[:, -1], slopes, tokens.shape[1])

    def describe(self) -> dict[str, Any]:
        """The target as plain data (inverse of `adaptive_from_dict`)."""
        memories: list[dict[str, Any]] = []
        for memory in self.memories:
            if isinstance(memory.lag, str):
                memories.append({"name": memory.name, "lag": memory.lag})
            else:
                memories.append({"name": memory.name, "lag": [to_text(v) for v in memory.lag], "parent": memory.parent})
        alphabet = [[to_text(v) for v in token] for token in self.alphabet]
        return {"kind": self.kind, "alphabet": alphabet, "readout": self.formula, "memory": memories}

    def tree_lines(self) -> list[str]:
        """The dependencies as an indented text tree, from the memories that no other memory reads; each memory is shown in full once."""
        lines: list[str] = []
        shown: set[str] = set()

        def walk(name: str, indent: int) -> None:
            if name == "x0" or name in shown:
                lines.append(f"{'  ' * indent}{name}: {'the current token' if name == 'x0' else 'see above'}")
                return
            shown.add(name)
            k = self.names.index(name)
            lags = ", ".join(map(str, self.occurring(k)))
            lines.append(f"{'  ' * indent}{name}: level {self.levels[name]}, lag {self.lag_text(k)} ∈ {{{lags}}}")
            for parent in self.parents[name]:
                walk(parent, indent + 1)

        for name in self.names:
            if self.graph.in_degree(name) == 0:
                walk(name, 0)
        return lines

    def lag_text(self, k: int) -> str:
        """The lag as the user wrote it."""
        memory = self.memories[k]
        return memory.lag if isinstance(memory.lag, str) else f"[{', '.join(map(str, memory.lag))}] of {memory.parent}"

    def dot(self) -> str:
        """The dependencies in Graphviz's language."""
        lines = ["digraph memories {", "  rankdir=BT; node [shape=box];", '  "x0" [label="x0"];']
        for k, name in enumerate(self.names):
            text = self.lag_text(k).replace('"', "'")
            lines.append(f'  "{name}" [label="{name}\\nlevel {self.levels[name]}\\nlag {text}"];')
        return "\n".join([*lines, *(f'  "{a}" -> "{b}";' for a, b in self.graph.edges), "}"])


def show_token(token: Sequence[fmpq]) -> str:
    """A token for people: 1, -1/2 or (0, 1)."""
    return str(token[0]) if len(token) == 1 else f"({', '.join(map(str, token))})"


def exact_number(value: Any, what: str) -> fmpq:
    """An exact number from TOML (decimals are exact), from a card (text), or from Python."""
    if isinstance(value, fmpq):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise InputError(f"{what} holds {str(value)[:40]!r}, which is not a number")
    if isinstance(value, str):
        return from_text(value)
    if isinstance(value, int):
        return fmpq(value) if abs(value) <= 10**9 else _refuse(value, what)
    if isinstance(value, float):
        return rational(value) if abs(value) <= 1e9 else _refuse(value, what)
    if not value.is_finite() or not -40 <= value.adjusted() <= 9 or len(value.as_tuple().digits) > 40:
        return fmpq(0) if value == 0 else _refuse(value, what)
    size = rational(f"{abs(value):f}")
    return -size if value < 0 else size


def _refuse(value: object, what: str) -> NoReturn:
    shown = "an enormous integer" if isinstance(value, int) else str(value)[:40]
    raise InputError(f"{what} holds {shown}; numbers must be finite and of reasonable size")


def adaptive_from_dict(data: dict[str, Any], source: str) -> AdaptiveMemory:
    """A target from parsed TOML or JSON; unknown keys and wrong types are refused."""
    unknown = set(data) - {"kind", "alphabet", "readout", "memory"}
    if unknown:
        raise InputError(f"{source}: unknown key {sorted(unknown)[0]!r}")
    alphabet, memories, formula = data.get("alphabet"), data.get("memory"), data.get("readout")
    if not isinstance(alphabet, list) or not all(isinstance(token, list) for token in alphabet):
        raise InputError(f"{source}: alphabet must be a list of token vectors such as [[-1.0], [1.0]]")
    if not isinstance(memories, list) or not all(isinstance(m, dict) for m in memories):
        raise InputError(f"{source}: give one [[memory]] with name and lag for every memory")
    if formula is not None and not isinstance(formula, str):
        raise InputError(f"{source}: readout must be text")
    tokens = tuple(map(tuple, alphabet[: MAX_ALPHABET + 1]))
    return AdaptiveMemory(tokens, tuple(_memory(m, source) for m in memories[: MAX_MEMORIES + 1]), formula)


def _memory(data: dict[str, Any], source: str) -> Memory:
    unknown = set(data) - {"name", "lag", "parent"}
    if unknown:
        raise InputError(f"{source}: unknown key {sorted(unknown)[0]!r} in a memory")
    name, lag, parent = data.get("name"), data.get("lag"), data.get("parent", "x0")
    if not isinstance(name, str) or not isinstance(parent, str):
        raise InputError(f"{source}: a memory's name and parent are text")
    if isinstance(lag, list):
        return Memory(name, tuple(lag[: MAX_ALPHABET + 1]), parent)
    if isinstance(lag, int) and not isinstance(lag, bool):
        lag = str(exact_number(lag, f"the lag of {name[:40]}"))
    if not isinstance(lag, str):
        raise InputError(f"{source}: the lag of {name[:40]} must be an expression (text) or a table (list)")
    if "parent" in data:
        raise InputError(f"{source}: parent goes with a lag table; an expression names its parents itself")
    return Memory(name, lag)
