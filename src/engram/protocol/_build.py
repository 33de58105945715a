"""A spec's stream, and its method, ready to learn that."""

from __future__ import annotations

from collections.abc import Sequence

from engram.methods import Method, Setup, method_entry
from engram.models import stacked
from engram.protocol._spec import Spec
from engram.streams import Stream, benchmark


def build_stream(spec: Spec, seeds: Sequence[int], device: str) -> Stream:
    """Return what the runs of these seeds learn, resident on a device."""
    stream = benchmark(spec.benchmark).build(
        seeds,
        spec.tasks,
        spec.examples,
        settings=spec.stream_settings(),
        tuning=spec.split == "tuning",
        device=device,
    )
    stream.passes = spec.passes
    return stream


def build_method(specs: Sequence[Spec], stream: Stream, device: str) -> Method:
    """Return the method with a network for each of the stream's seeds, as each draws it.

    There is a spec for each of them.
    """
    network = stream.network()
    drawn = [stream.initialise(network, seed) for seed in stream.seeds]
    settings = [spec.method_settings() for spec in specs]
    each = settings if any(one != settings[0] for one in settings) else ()
    setup = Setup(network, stacked(drawn, device), stream.seeds, stream, each)
    return method_entry(specs[0].method).build(setup, settings[0])
