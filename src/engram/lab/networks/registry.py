"""Networks that anybody may bring: any `nn.Module`, by a name, by the file it is in, from Python.

A network is given as what makes it: a class or a function ``make(shape, outputs, **arguments)``
that returns an `nn.Module`. ``shape`` is that of one example as the network sees it, without the
batch; ``outputs`` is how many numbers it is to give for each.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from engram import plugins
from engram.errors import EngramError, shown, unknown
from engram.lab.networks.plain import PlainMLP, PlainResNet
from engram.lab.settings import Scalar

Factory = Callable[..., nn.Module]

_NUMERICS = 1  # raised when a change of our own plain networks changes numbers
_FILE = ".py"
_digests: dict[Path, str] = {}  # of files, when they were loaded
_given: dict[str, Factory] = {}  # what this process was given from Python, by its name


def _checked_factory(name: str, factory: object) -> Factory:
    if not callable(factory):
        raise EngramError(
            f"The network {name!r} must be a class or a function of a shape and a number of "
            f"outputs, not {shown(factory)}."
        )
    return factory


NETWORKS: plugins.Registry[Factory] = plugins.Registry("networks", "network", _checked_factory)


def register(name: str, factory: Factory) -> None:
    """Make a network known by a name, for ``--network NAME``.

    Worker processes know it too if this is called in a plugin's module (see docs/extending).
    """
    NETWORKS.add(name, factory, module=getattr(factory, "__module__", ""))


def names() -> list[str]:
    """Return the names of all networks."""
    return NETWORKS.names()


register("mlp", PlainMLP)
register("resnet18-reduced", PlainResNet)


@dataclass(frozen=True)
class NetworkSource:
    """A network by its name, and the arguments that it is made with; nothing is loaded by that.

    The name is a registered one, or ``FILE.py:name`` or ``package.module:name``, a class or a
    function there. Two are equal if both are.
    """

    name: str
    arguments: tuple[tuple[str, Scalar], ...] = ()

    @property
    def identity(self) -> dict[str, Any]:
        """What results are filed under: the source, its arguments, and what it needs installed.

        Of what is not installed it is a digest of the source and of every module that it imports,
        of what is installed the distribution and its version; not where the file lies. The source
        is read when it is first asked for, and executed never. torch and Engram have no part in it,
        as in that of no other result: their versions are beside each.
        """
        return dict(self._identity)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        identity = self._described()
        return {**identity, "arguments": dict(self.arguments)}

    def _described(self) -> dict[str, Any]:
        place, attribute = self._place
        if not place:
            NETWORKS.get(attribute)
            origin = NETWORKS.origin(attribute)
            if origin.identity is None:
                return {"name": attribute, "source": f"engram {_NUMERICS}"}
            return {"name": attribute, "source": origin.identity}
        if place.endswith(_FILE):
            file = _file(self.name, place)
            return {
                "name": attribute,
                "source": f"sha256:{plugins.source_digest(file)}",
                "packages": plugins.requirements(file),
            }
        self.factory()  # a module is found by importing what it is in
        origin = plugins.origin_of(place)
        if origin.identity is None:
            raise EngramError(
                f"The network {self.name!r} must be defined in a file, or no worker finds it."
            )
        return {"name": attribute, "source": origin.identity}

    def check_source(self) -> None:
        """Refuse a source that was changed since the identity was first asked for, if it was."""
        before = vars(self).get("_identity")
        if before and NetworkSource(self.name, self.arguments).identity != before:
            raise EngramError(
                f"The source of the network {self.name!r} was changed after the command was given: "
                "give it again to run the network as it is now."
            )

    @property
    def short_name(self) -> str:
        """The name less the folder that its file is in, and the arguments."""
        place, attribute = self._place
        short = f"{Path(place).name}:{attribute}" if place.endswith(_FILE) else self.name
        return " ".join([short, *(f"{name}={value}" for name, value in self.arguments)])

    def factory(self) -> Factory:
        """Return what makes the network; EngramError says why there is none."""
        place, attribute = self._place
        if self.name in _given:
            return _given[self.name]
        if not place:
            return NETWORKS.get(attribute)
        if place.endswith(_FILE):
            module = self._loaded(_file(self.name, place))
        else:
            with naming(self.name, "imported"):
                module = importlib.import_module(place)
        found = getattr(module, attribute, None)
        if found is None:
            own = [
                name
                for name, value in vars(module).items()
                if getattr(value, "__module__", None) == module.__name__ and callable(value)
            ]
            raise unknown(f"network in {place}", attribute, own)
        return _checked_factory(self.name, found)

    def _loaded(self, file: Path) -> ModuleType:
        """Return the module of a file; what was changed since is another one's."""
        digest = plugins.source_digest(file)
        if _digests.setdefault(file, digest) != digest:
            raise EngramError(
                f"The source of the network {self.name!r} was changed after it was loaded: begin a "
                "new process to use it as it is now."
            )
        try:
            return plugins.load_file(file, registers=False, noun="network")
        except EngramError:
            del _digests[file]
            raise

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Return the network for examples of a shape, freshly drawn from torch's generator."""
        factory, arguments = self.factory(), dict(self.arguments)
        with naming(self.name, "made"):
            try:
                signature = inspect.signature(factory)
            except (TypeError, ValueError):  # it has none that can be known
                signature = None
            if signature is not None:
                _check_arguments(self.name, signature, arguments)
            module = factory(tuple(shape), outputs, **arguments)
        if not isinstance(module, nn.Module):
            raise EngramError(
                f"The network {self.name!r} must be an nn.Module, and what was made is "
                f"{shown(module)}."
            )
        if any(is_lazy(each) for each in module.parameters()):
            with naming(self.name, "used"), torch.no_grad():
                module.eval()(torch.zeros(2, *shape))  # layers that ask their first inputs
        _check_parameters(self.name, module)
        return module

    def check(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Return the network once two examples have gone through it, in both modes."""
        with drawing_from(0):
            module = self.build(shape, outputs)
            inputs = torch.rand(2, *shape)
            for training in (True, False):
                with naming(self.name, "used"), torch.set_grad_enabled(training):
                    module.train(training)
                    logits = module(inputs)
                check_outputs(self.name, logits, 2, outputs)
                if training and not logits.requires_grad:
                    raise EngramError(
                        f"The network {self.name!r} gives outputs that do not depend on any "
                        "parameter, as far as autograd can tell."
                    )
            return module

    @property
    def _place(self) -> tuple[str, str]:
        """The file or module that it is in, or nothing for a registered name; and its name."""
        place, _, attribute = self.name.rpartition(":")
        return place, attribute


def network_source(
    network: str | Factory | NetworkSource, arguments: Mapping[str, str | Scalar] | None = None
) -> NetworkSource:
    """Return the source of a network that is given by name, or from Python as what makes it.

    Arguments may be texts, as on the command line: ``"64"`` is the number 64.

    >>> network_source("mlp", {"width": "64"}).build((8,), 3)[1]
    Linear(in_features=8, out_features=64, bias=True)
    """
    more = {name: _value(value) for name, value in (arguments or {}).items()}
    if isinstance(network, NetworkSource):
        more = {**dict(network.arguments), **more}
        return NetworkSource(network.name, tuple(sorted(more.items())))
    name = network if isinstance(network, str) else _name_of(network)
    source = NetworkSource(name, tuple(sorted(more.items())))
    place, attribute = source._place
    if not attribute.isidentifier() and place:
        raise EngramError(f"network must be FILE.py:NAME or a registered name, not {name!r}.")
    if not place:
        if name.endswith(_FILE):
            raise EngramError(f"network must say what of the file it is, as in {name}:Network.")
        NETWORKS.get(name)
    elif place.endswith(_FILE):
        _file(name, place)
    return source


def _name_of(factory: object) -> str:
    """Return the name by which a worker process finds what was given from Python."""
    _checked_factory("given", factory)
    module = str(getattr(factory, "__module__", ""))
    attribute = str(getattr(factory, "__qualname__", ""))
    if not attribute.isidentifier():  # a lambda, a partial, something inside a function
        raise EngramError(
            f"network must be a class or a function at the top level of a module, not "
            f"{shown(factory)}: give what it is made with as arguments."
        )
    file = getattr(sys.modules.get(module), "__file__", None)
    if module in ("__main__", "__mp_main__"):
        if file is None:
            raise EngramError(
                f"The network {attribute!r} must be defined in a file, or no worker finds it."
            )
        module = str(Path(file).absolute())
    name = f"{module}:{attribute}"
    _given[name] = factory  # type: ignore[assignment] # it can be called
    return name


def _file(name: str, place: str) -> Path:
    try:
        path = Path(place).expanduser().absolute()
        found = path.is_file()
    except (OSError, RuntimeError, ValueError):  # a name that is too long; nobody's home
        found = False
    if not found:
        raise EngramError(f"There is no file {place!r} for the network {name!r}.")
    return path


def _value(value: str | Scalar) -> Scalar:
    """Return the number or truth value that a text stands for, or the text.

    >>> _value("64"), _value("true"), _value("gelu")
    (64, True, 'gelu')
    """
    if not isinstance(value, str):
        if isinstance(value, bool | int | float):
            return value
        raise EngramError(
            f"An argument of a network must be a number or a text, not {shown(value)}."
        )
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
    return found if isinstance(found, int | float) else value


def _check_arguments(
    name: str, signature: inspect.Signature, arguments: Mapping[str, Scalar]
) -> None:
    known = signature.parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known):
        return
    places = [each.name for each in known if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    taken = [each.name for each in known if each.kind is not inspect.Parameter.POSITIONAL_ONLY]
    free = [each for each in taken if each not in places[:2]]
    for argument in arguments:
        if argument not in free:
            raise unknown(f"argument of the network {name!r}", argument, free)


def _check_parameters(name: str, module: nn.Module) -> None:
    learned = {key: each for key, each in module.named_parameters() if each.requires_grad}
    if not learned:
        raise EngramError(f"The network {name!r} has no parameters to learn.")
    for key, each in learned.items():
        if each.dtype != torch.float32:
            raise EngramError(
                f"The network {name!r} must have parameters of float32, and {key} is of "
                f"{str(each.dtype).removeprefix('torch.')}."
            )
        if not bool(each.isfinite().all()):
            raise EngramError(f"The network {name!r} begins with a {key} that is not finite.")


def check_outputs(name: str, logits: object, examples: int, outputs: int) -> None:
    """Refuse what a network gave for so many examples if they are no logits."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        what = f"a tensor of {logits.dtype}" if isinstance(logits, Tensor) else shown(logits)
        raise EngramError(f"The network {name!r} must give a tensor of floats, and gives {what}.")
    if tuple(logits.shape) != (examples, outputs):
        raise EngramError(
            f"The network {name!r} must give {outputs} outputs for each example, [{examples}, "
            f"{outputs}] for {examples} of them, and gives {list(logits.shape)}."
        )
    if not bool(logits.isfinite().all()):
        raise EngramError(f"The network {name!r} gives outputs that are not finite.")


@contextmanager
def drawing_from(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Let torch's, NumPy's and Python's random numbers be those of a seed; then as they were."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    gpus = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            torch.cuda.default_generators[gpu.index or 0].manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)


@contextmanager
def naming(name: str, done: str) -> Iterator[None]:
    """Turn whatever somebody else's network raises into a sentence that names it."""
    try:
        yield
    except (KeyboardInterrupt, torch.OutOfMemoryError):
        raise
    except EngramError as error:
        if repr(name) in str(error):
            raise
        raise EngramError(f"The network {name!r} cannot be {done}: {error}") from error
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = next(
            (
                f" in line {each.lineno}"
                for each in reversed(frames)
                if Path(each.filename).name == Path(name.rpartition(":")[0]).name
            ),
            "",
        )
        reason = f"{type(error).__name__}{where}: {error}".rstrip(": .")
        raise EngramError(f"The network {name!r} cannot be {done}: {reason}.") from error
