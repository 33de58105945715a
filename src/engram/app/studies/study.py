"""What a study is, and how it is read from TOML: the paper's by name, one's own by path."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engram.app.report import value_text
from engram.app.runs import LOCAL, Cluster
from engram.errors import EngramError, shown, unknown
from engram.lab import protocol
from engram.lab.settings import Scalar
from engram.plugins import use_files

if TYPE_CHECKING:
    from engram.lab.networks import NetworkSource
    from engram.lab.protocol import Spec

_ENDING = ".toml"
_FOLDER = resources.files("engram.app.paper") / "studies"
_ENTRY = re.compile(r"\s*\[\[\s*runs\s*\]\]")
_BEYOND = 2**63  # TOML's own numbers end before it, though its reader's do not
_NEEDED = ("benchmark", "methods")
_Mistake = Callable[..., EngramError]  # source.error of one entry


@dataclass(frozen=True)
class Runs:
    """One entry of a study: methods on a benchmark, with the paper's values for all not given.

    An entry with ``each`` stands for one for every combination of these values. What is to be
    ``search``-ed for is chosen on tuning tasks (`engram.app.runs.select`), for every method and
    combination by itself. What is chosen is run again with each of the values of ``without`` in
    the place of the chosen one, of one setting at a time: an ablation.
    """

    benchmark: str
    methods: tuple[str, ...]
    seeds: int = 5
    tasks: int | None = None
    examples: int | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    network: str | None = None  # as --network takes it, a file beside the study's
    network_settings: Mapping[str, Scalar] = field(default_factory=dict)
    record_every: int = 0  # what every so many steps are made of is recorded; 0: of none
    each: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    search: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    search_seeds: int = 3  # runs of each point of the grid
    without: Mapping[str, Scalar] = field(default_factory=dict)
    without_seeds: int = 5
    specs: tuple[Spec, ...] = ()  # one for each method, once they have been checked
    trials: tuple[tuple[Spec, ...], ...] = ()  # of each method, the grid on tuning tasks

    def ablation(self, spec: Spec) -> Iterator[tuple[str, Spec]]:
        """Yield the specs of the ablation of what was chosen, each with the setting it leaves out.

        Of an ingredient that ``spec`` has not there is nothing to leave out.
        """
        for name, value in self.without.items():
            if spec.settings.get(name, value) != value:
                yield name, replace(spec, settings={**spec.settings, name: value})

    @property
    def combinations(self) -> list[Runs]:
        """The entries that it stands for."""
        return [
            replace(
                self,
                settings={**self.settings, **dict(zip(self.each, values, strict=True))},
                each={},
            )
            for values in product(*self.each.values())
        ]


@dataclass(frozen=True)
class Study:
    """A set of runs that belong together."""

    name: str
    title: str
    runs: tuple[Runs, ...]
    cluster: Cluster = LOCAL  # where they are trained, if nothing else is asked for
    table: bool = False  # whether a table by the size of the memory is written of it

    def with_network(self, network: NetworkSource | None) -> Study:
        """Return the study with a network for the runs that name none."""
        if network is None:
            return self
        changed = (
            replace(each, specs=tuple(replace(spec, network=network) for spec in each.specs))
            if each.network is None
            else each
            for each in self.runs
        )
        return replace(self, runs=tuple(changed))

    def only(self, words: Sequence[str]) -> Study:
        """Return a part of the study: what is named of its benchmarks, methods or settings.

        A setting is NAME=VALUE; an entry's methods that do not know it have a part in all values.
        """
        for word in words:
            if word not in (known := [*dict.fromkeys(self._parts())]):
                raise unknown("part of the study", word, known)
        runs = list[Runs]()
        for entry in self.runs:
            kept = [
                place
                for place, spec in enumerate(entry.specs)
                if _among(entry.benchmark, words, {each.benchmark for each in self.runs})
                and _among(
                    spec.method, words, {name for each in self.runs for name in each.methods}
                )
                and all(
                    _among(f"{name}={value_text(spec.settings[name])}", words, values)
                    for name, values in self._values().items()
                    if name in spec.settings
                )
            ]
            if kept:
                runs.append(
                    replace(
                        entry,
                        methods=tuple(entry.specs[place].method for place in kept),
                        specs=tuple(entry.specs[place] for place in kept),
                        trials=tuple(entry.trials[place] for place in kept if entry.trials),
                    )
                )
        return replace(self, runs=tuple(runs))

    def label(self, spec: Spec) -> str:
        """Return the settings of a method that the study's entries do not all give alike."""
        beside = [each.settings for each in self.runs if each.specs[0].benchmark == spec.benchmark]
        varied = [
            name
            for name in dict.fromkeys(name for given in beside for name in given)
            if name in spec.settings
            and any(given.get(name) != beside[0].get(name) for given in beside)
        ]
        return " ".join(f"{name}={value_text(spec.settings[name])}" for name in varied)

    def _parts(self) -> Iterator[str]:
        for entry in self.runs:
            yield from (entry.benchmark, *entry.methods)
        for values in self._values().values():
            yield from sorted(values)

    def _values(self) -> Mapping[str, set[str]]:
        """Return all that the entries say of settings, as they would be given: NAME=VALUE."""
        values = dict[str, set[str]]()
        for entry in self.runs:
            for name, value in entry.settings.items():
                values.setdefault(name, set()).add(f"{name}={value_text(value)}")
        return values


def _among(one: str, words: Sequence[str], kind: set[str]) -> bool:
    """Say whether one of a kind is wanted: any is where no word is of that kind."""
    asked = [word for word in words if word in kind]
    return not asked or one in asked


def study_names() -> list[str]:
    """Return the names of the paper's studies."""
    return sorted(
        file.name.removesuffix(_ENDING) for file in _FOLDER.iterdir() if file.name.endswith(_ENDING)
    )


def read_study(target: str, trust: Sequence[Path] = ()) -> Study:
    """Return one of the paper's studies, by its name, or that of a file, by its path.

    What is wrong with it is said in one sentence, with the line, the field and what would be right.
    A file that a study names a network of is executed when it is run: only those to ``trust`` may
    be named.
    """
    return _read(_source(target, trust))


def _source(target: str, trust: Sequence[Path] = ()) -> _Source:
    if target in study_names():
        name = f"{target}{_ENDING}"
        return _Source(name, _FOLDER.joinpath(name).read_text("utf-8"))
    if not target.endswith(_ENDING):
        names = [*study_names(), "the path of a .toml file"]
        raise unknown("study", target, names)
    try:
        text = Path(target).read_bytes().decode("utf-8-sig")
        return _Source(target, text, frozenset(path.expanduser().resolve() for path in trust))
    except (OSError, ValueError) as error:  # a value: no name for a file, or no UTF-8 in it
        raise EngramError(f"{target!r} cannot be read: {error}.") from error


def _read(source: _Source) -> Study:
    try:
        document = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(source, error) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; [[[[…
        raise EngramError(f"{source.name} is not TOML: {error}.") from None
    _check_study(document, source)
    for file in document.get("plugins", ()):
        try:
            use_files([Path(source.name).parent / file])
        except EngramError as error:
            raise source.error(error, "plugins", file) from error
    runs: list[Runs] = []
    for name in document.get("include", ()):
        if name not in study_names():
            raise source.error(unknown("study", name, study_names()), "include", name)
        runs += _read(_source(name)).runs
    for number, given in enumerate(document.get("runs", ())):
        entry = _as_runs(given, number, source)
        runs += [_checked(each, number, source) for each in entry.combinations]
    cluster = _cluster(document.get("executor", {}), source)
    return Study(
        source.name.removesuffix(_ENDING),
        document["title"],
        tuple(runs),
        cluster,
        document.get("table", False),
    )


def _not_toml(source: _Source, error: tomllib.TOMLDecodeError) -> EngramError:
    """Say it with the line in its place; at the end of a file there is none in the error."""
    found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
    line = (found and found[1]) or str(max(len(source.text.splitlines()), 1))
    problem = str(error)[: found.start()] if found else str(error)
    return EngramError(f"{source.name}, line {line}: not TOML: {problem}.")


class _Source(NamedTuple):
    """A TOML file: its name as the user knows it, and its text."""

    name: str
    text: str
    trusted: frozenset[Path] = frozenset()  # files that may be executed

    def error(
        self,
        problem: object,
        field: str,
        value: object = None,
        *,
        entry: int | None = None,
        inside: str = "",
    ) -> EngramError:
        """Return a mistake with the line and the field it is in.

        The line is that of ``field`` (of entry number ``entry``, if any) or, where the field is a
        list, that of ``value`` in it; a field ``inside`` another may be of a table of its own.
        """
        line = self._line(field, value, entry, inside)
        place = f"{inside}.{field}" if inside else field
        return EngramError(f"{self.name}, line {line}, {place}: {problem}")

    def _line(self, field: str, value: Any, entry: int | None, inside: str) -> int:  # noqa: ANN401
        lines = self.text.splitlines()
        starts = [number for number, line in enumerate(lines) if _ENTRY.match(line)]
        first, last = 0, starts[0] if starts else len(lines)
        if entry is not None and entry < len(starts):
            first, last = starts[entry], [*starts, len(lines)][entry + 1]
        elif entry is not None:  # entries written as a list
            last = len(lines)
        key = re.compile(rf"""(^|[\s,{{."'])({re.escape(field)})["']?\s*=""")
        own = re.escape(inside)  # a table of its own, or one in a line
        headers = re.compile(rf"\s*(\[\s*runs\.{own}\s*\]|{own}\s*=)") if inside else None
        place = first
        if headers is not None:
            place = next((n for n in range(first, last) if headers.match(lines[n])), first)
        found = next((n for n in range(place, last) if key.search(lines[n])), first)
        if isinstance(value, str):
            quoted = re.compile(rf"""["']{re.escape(value)}["']""")
            found = next((n for n in range(found, last) if quoted.search(lines[n])), found)
        return found + 1


class _Kind(NamedTuple):
    wanted: str
    fits: Callable[[Any], bool]


def _texts(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _count(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < _BEYOND


def _setting(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, Scalar) and not (isinstance(value, int) and abs(value) >= _BEYOND)


_TEXT = _Kind("a text", lambda value: isinstance(value, str))


_NAMES = _Kind("a list of names", _texts)


_NUMBER = _Kind("a whole number of at least 1", _count)


_SWITCH = _Kind("true or false", lambda value: isinstance(value, bool))


_STUDY = {
    "title": _TEXT,
    "table": _SWITCH,
    "include": _NAMES,
    "plugins": _Kind("a list of files", _texts),
    "runs": _Kind("a list of tables, [[runs]]", lambda value: isinstance(value, list)),
    "executor": _Kind("a table, [executor]", lambda value: isinstance(value, dict)),
}


_EXECUTOR = {
    "name": _TEXT,
    "workers": _NUMBER,
    "gpus_per_worker": _Kind(
        "a number from 0 to 1",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    ),
    "shared": _TEXT,
    "ship_data": _SWITCH,
    "trust_plugins": _SWITCH,
    "slurm": _Kind(
        "a table of whole numbers and texts",
        lambda value: (
            isinstance(value, dict)
            and all(isinstance(each, str) or _count(each) for each in value.values())
        ),
    ),
}


_RUNS = {
    "benchmark": _TEXT,
    "methods": _NAMES,
    "seeds": _NUMBER,
    "tasks": _NUMBER,
    "examples": _NUMBER,
    "settings": _Kind("a table of settings", lambda value: isinstance(value, dict)),
    "network": _TEXT,
    "network_settings": _Kind("a table of arguments", lambda value: isinstance(value, dict)),
    "record_every": _NUMBER,
    "each": _Kind("a table of lists of values", lambda value: isinstance(value, dict)),
    "search": _Kind("a table of lists of values", lambda value: isinstance(value, dict)),
    "search_seeds": _NUMBER,
    "without": _Kind("a table of settings", lambda value: isinstance(value, dict)),
    "without_seeds": _NUMBER,
}


_SETTING = _Kind("a number, a text, true or false", _setting)
_VALUES = _Kind(
    "a list of numbers, texts, true or false, each once",
    lambda value: (
        isinstance(value, list)
        and bool(value)
        and all(map(_setting, value))
        and len({*map(str, value)}) == len(value)
    ),
)


def _check_study(document: Mapping[str, Any], source: _Source) -> None:
    """Refuse a file with fields that nobody knows, or of the wrong kind; runs come later."""
    for name, value in document.items():
        if name not in _STUDY:
            raise source.error(unknown("field", name, _STUDY), name)
        if not _STUDY[name].fits(value):
            raise source.error(_misfit(name, value, _STUDY[name]), name)
    if "title" not in document:
        raise source.error(EngramError("A study must have a title, a text."), "title")
    if not document.get("runs") and not document.get("include"):
        raise source.error(
            EngramError("A study must have runs, a table [[runs]] or more, or include others."),
            "runs",
        )


def _cluster(given: Mapping[str, Any], source: _Source) -> Cluster:
    """Return where a study says that it is to be trained; whether that is possible comes later."""
    for name, value in given.items():
        if name not in _EXECUTOR:
            raise source.error(unknown("field", name, _EXECUTOR), name)
        if not _EXECUTOR[name].fits(value):
            raise source.error(_misfit(name, value, _EXECUTOR[name]), name)
    chosen = {("executor" if name == "name" else name): value for name, value in given.items()}
    if "shared" in chosen:
        chosen["shared"] = Path(chosen["shared"]).expanduser().absolute()
    return Cluster(**chosen)


def _as_runs(given: Any, number: int, source: _Source) -> Runs:  # noqa: ANN401
    """Return an entry of a study if its fields are known and of the right kind."""
    if not isinstance(given, dict):
        raise source.error(f"runs must be tables, not {shown(given)}.", "runs", entry=number)
    for name, value in given.items():
        if name not in _RUNS:
            raise source.error(unknown("field", name, _RUNS), name, entry=number)
        if not _RUNS[name].fits(value):
            raise source.error(_misfit(name, value, _RUNS[name]), name, entry=number)
    tables = {
        "settings": _SETTING,
        "network_settings": _SETTING,
        "each": _VALUES,
        "search": _VALUES,
        "without": _SETTING,
    }
    for table, kind in tables.items():
        for name, value in given.get(table, {}).items():
            if not kind.fits(value):
                raise source.error(_misfit(name, value, kind), name, entry=number, inside=table)
    for name in _NEEDED:
        if name not in given:
            raise source.error(f"{name} is missing: {_RUNS[name].wanted}.", name, entry=number)
    methods = tuple(given["methods"])
    for method in methods:
        if methods.count(method) > 1:
            raise source.error(
                f"The method {method!r} is named twice.", "methods", method, entry=number
            )
    return Runs(**{**given, "methods": methods})


def _misfit(name: str, value: object, kind: _Kind) -> str:
    return f"{name} must be {kind.wanted}, not {shown(value)}."


def _checked(runs: Runs, number: int, source: _Source) -> Runs:
    """Return an entry with its specs; an EngramError names the line and the field at fault."""

    def mistake(problem: object, field: str, value: object = None, **more: str) -> EngramError:
        return source.error(problem, field, value, entry=number, **more)

    known = {method: _known(runs.benchmark, method, mistake) for method in runs.methods}
    for table in ("settings", "search", "without"):
        for name in getattr(runs, table):
            if not any(name in names for names in known.values()):
                everything = set[str]().union(*known.values())
                raise mistake(unknown("setting", name, everything), name, inside=table)
    network = _network(runs, source, mistake)
    specs = tuple(_spec(runs, method, known[method], mistake) for method in known)
    trials = tuple(_grid(runs, method, known[method], mistake) for method in known)
    for method in known:
        _check_ablation(runs, method, known[method], mistake)
    if network is not None:
        specs = tuple(replace(spec, network=network) for spec in specs)
        trials = tuple(
            tuple(replace(spec, network=network) for spec in points) for points in trials
        )
    return replace(runs, specs=specs, trials=trials)


def _grid(runs: Runs, method: str, known: set[str], mistake: _Mistake) -> tuple[Spec, ...]:
    """Return the trials of a method, on tuning tasks; none where nothing of it is searched."""
    search = {name: values for name, values in runs.search.items() if name in known}
    if not search:
        return ()
    texts = {name: value_text(value) for name, value in runs.settings.items() if name in known}
    try:
        return tuple(
            protocol.specify(
                runs.benchmark,
                method,
                examples=runs.examples,
                overrides=texts | {name: value_text(value) for name, value in point},
                split="tuning",
            )
            for point in (
                tuple(zip(search, values, strict=True)) for values in product(*search.values())
            )
        )
    except EngramError as error:
        raise mistake(error, "search") from None


def _check_ablation(runs: Runs, method: str, known: set[str], mistake: _Mistake) -> None:
    """Refuse a value of ``without`` that the method does not take."""
    texts = {name: value_text(value) for name, value in runs.settings.items() if name in known}
    for name, value in runs.without.items():
        if name not in known:
            continue
        try:
            protocol.specify(
                runs.benchmark,
                method,
                tasks=runs.tasks,
                examples=runs.examples,
                overrides=texts | {name: value_text(value)},
            )
        except EngramError as error:
            raise mistake(error, name, inside="without") from None


def _network(runs: Runs, source: _Source, mistake: _Mistake) -> NetworkSource | None:
    """Return the network of an entry, or None for the benchmark's own."""
    if runs.network is None:
        if runs.network_settings:
            raise mistake("they are those of a network, which is missing.", "network_settings")
        return None
    place, colon, name = runs.network.rpartition(":")
    if place.endswith(".py"):
        file = Path(source.name).parent / Path(place).expanduser()
        if file.resolve() not in source.trusted:
            raise mistake(
                f"{place} would be executed, and is only if you say that you trust it: "
                f"--trust {file}.",
                "network",
            )
        place = str(file)
    elif place:
        raise mistake("network must be FILE.py:NAME or a registered name.", "network")
    try:
        return protocol.network_source(f"{place}{colon}{name}", runs.network_settings)
    except EngramError as error:
        raise mistake(error, "network") from None


def _known(benchmark: str, method: str, mistake: _Mistake) -> set[str]:
    """Return the settings that a method takes on a benchmark."""
    try:
        return {item.name for item in protocol.settings_help(benchmark, method)}
    except EngramError as error:
        if str(error).startswith("There is no method"):
            raise mistake(error, "methods", method) from None
        raise mistake(error, "benchmark") from None


def _spec(runs: Runs, method: str, known: set[str], mistake: _Mistake) -> Spec:
    """Return the spec of one method; a setting goes to the methods that know it.

    Where it will not do, what is given is added piece by piece: at fault is the first that leads
    to the same error. Fewer may have another one, as a table needs several settings.
    """
    texts, sizes = dict[str, str](), dict[str, int | None]()
    trials: list[tuple[str, str, dict[str, str], dict[str, int | None]]]
    trials = [("benchmark", "", texts, sizes)]
    for name, value in runs.settings.items():
        if name in known:
            texts = {**texts, name: value_text(value)}
            trials.append((name, "settings", texts, sizes))
    for name in ("tasks", "examples"):
        sizes = {**sizes, name: getattr(runs, name)}
        trials.append((name, "", texts, sizes))

    def tried(overrides: dict[str, str], given: dict[str, int | None]) -> Spec | str:
        try:
            return protocol.specify(
                runs.benchmark,
                method,
                tasks=given.get("tasks"),
                examples=given.get("examples"),
                overrides=overrides,
            )
        except EngramError as error:
            return str(error)

    made = tried(texts, sizes)
    if not isinstance(made, str):
        return made
    at_fault = (trial[:2] for trial in trials if tried(*trial[2:]) == made)
    field, inside = next(at_fault, ("benchmark", ""))  # where a file is changed meanwhile
    raise mistake(made, field, inside=inside)
