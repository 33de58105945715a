"""A run that is stopped anywhere and goes on ends with the bits of one that was not."""

import resource
from contextlib import contextmanager
from itertools import count

import pytest
import torch
from dying_checkpoints import Dying, Killed, checkpoint
from tiny_worlds import run_whole, same_bits, tiny_spec

from engram.errors import EngramError
from engram.lab.methods import Method, names
from engram.lab.protocol import Checkpoint, Paused, run
from engram.lab.protocol import checkpoint as files


def stopped_and_resumed(spec, seeds, tmp_path, lives, **options):
    """Kill a run after every few saves until it is through; return it, and how often it died."""
    deaths = 0
    while True:
        place = checkpoint(tmp_path, Dying, lives=lives)
        try:
            return run_whole(spec, seeds, checkpoint=place, **options), deaths
        except Killed:
            deaths += 1


@pytest.mark.numerical
@pytest.mark.parametrize("method", names())
def test_every_method_ends_with_the_same_bits(method, tmp_path):
    # 6 steps in each of 3 tasks, and 2 ends between tasks, are 20 places to die at.
    spec = tiny_spec(method)
    whole = run_whole(spec, [0, 1])
    again, deaths = stopped_and_resumed(spec, [0, 1], tmp_path, lives=3)
    assert deaths == 6
    assert same_bits(again, whole)


@pytest.mark.numerical
@pytest.mark.parametrize("method", ["mega-ii", "prog-nn", "rwalk"])
def test_a_network_with_batch_norm_ends_with_the_same_bits(method, tmp_path):
    spec = tiny_spec(method, "tiny-images", tasks=2, examples=10, learning_rate=0.01)
    whole = run_whole(spec, [0])
    again, deaths = stopped_and_resumed(spec, [0], tmp_path, lives=2)
    assert deaths == 3
    assert same_bits(again, whole)


@pytest.mark.numerical
@pytest.mark.parametrize("memory", ["sample", "reservoir", "fifo"])
def test_every_memory_ends_with_the_same_bits(memory, tmp_path):
    spec = tiny_spec("mega-ii", memory=memory)
    again, _ = stopped_and_resumed(spec, [3], tmp_path, lives=4)
    assert same_bits(again, run_whole(spec, [3]))


@pytest.mark.numerical
def test_records_of_steps_and_tuning_tasks_end_with_the_same_bits(tmp_path):
    from dataclasses import replace

    spec = replace(tiny_spec("mega-i"), split="tuning", passes=2)
    whole = run_whole(spec, [0], record_every=2)
    again, deaths = stopped_and_resumed(spec, [0], tmp_path, lives=5, record_every=2)
    assert deaths > 5
    assert same_bits(again, whole)


def test_the_seconds_of_all_parts_add_up(tmp_path, monkeypatch):
    clock = count(step=10.0)
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    spec = tiny_spec("van")
    with pytest.raises(Killed):
        run(spec, [0, 1], checkpoint=checkpoint(tmp_path, Dying, lives=1))
    # 10 to the first save; then 10 more to the end of a run that never saves again.
    (outcome, _) = run(spec, [0, 1], checkpoint=checkpoint(tmp_path, every=1e9))
    assert outcome.seconds == (10 + 10) / 2


def test_a_run_that_is_asked_to_pause_saves_itself_and_goes_on_later(tmp_path):
    spec = tiny_spec("mega-ii")
    place = checkpoint(tmp_path, every=1e9)
    seen = []

    def ask(progress):
        seen.append(progress.step)
        place.pause()

    with pytest.raises(Paused, match="task 1 of 3, step 6"):
        run(spec, [0], checkpoint=place, progress=ask)
    assert seen == [6]  # the last of the first task is the first that is told
    steps = []
    last = checkpoint(tmp_path, every=1e9)
    resumed = run_whole(spec, [0], checkpoint=last, progress=lambda told: steps.append(told.step))
    assert steps == [12, 18]
    assert same_bits(resumed, run_whole(spec, [0]))
    assert place.path.exists()  # whoever stores the outcome removes it
    last.remove()
    assert list(place.path.parent.iterdir()) == []


def test_nothing_is_written_before_it_is_time(tmp_path):
    run(tiny_spec("van"), [0], checkpoint=checkpoint(tmp_path, every=1e9))
    assert list((tmp_path / "saved").iterdir()) == []


def test_a_clock_that_jumps_saves_once_and_goes_on(tmp_path):
    times = iter([*(0.0,) * 4, 1e9, *(1e9,) * 5, -1e9, *(-1e9,) * 100])
    saved = []

    class Counting(Checkpoint):
        def save(self, run, state, where):
            saved.append((state["task"], state["step"]))
            super().save(run, state, where)

    place = checkpoint(tmp_path, Counting, every=60, clock=lambda: next(times))
    run(tiny_spec("van"), [0], checkpoint=place)
    assert saved == [(0, 4), (1, 2)]


# ---- files that are not what they should be


@pytest.fixture
def halfway(tmp_path):
    """A run that died after its fifth save."""
    with pytest.raises(Killed):
        run(tiny_spec("mega-ii"), [0], checkpoint=checkpoint(tmp_path, Dying, lives=5))
    return checkpoint(tmp_path, every=1e9)


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_taken(halfway):
    damage(halfway.path)
    assert same_bits(
        run_whole(tiny_spec("mega-ii"), [0], checkpoint=halfway),
        run_whole(tiny_spec("mega-ii"), [0]),
    )
    assert [line.isprintable() for line in halfway.lines] == [True, True]
    assert "is damaged: its checksum does not match" in halfway.lines[0]
    assert halfway.lines[1] == "The one before it, of task 1 of 3, step 4, is taken."
    assert files.read(halfway.path).document["where"] == "task 1 of 3, step 4"


def test_a_kill_between_two_names_leaves_the_one_before(halfway):
    halfway.path.unlink()
    place = checkpoint(halfway.path.parents[1], Dying, lives=1)
    with pytest.raises(Killed):
        run(tiny_spec("mega-ii"), [0], checkpoint=place)
    assert place.last == "task 1 of 3, step 5"
    assert place.lines == []


def test_a_kill_between_two_names_is_found_out(halfway, tmp_path):
    spec, path = tiny_spec("mega-ii"), halfway.path
    path.unlink()
    assert Checkpoint.saved_in(path.parent) == [path]
    assert Checkpoint.peek(path)["identities"] == [spec.identity()]
    assert Checkpoint.peek(tmp_path / "none.safetensors") is None
    halfway.load(Checkpoint.peek(path))
    assert (path.exists(), files.previous_of(path).exists()) == (True, False)


def test_two_damaged_ones_are_told_and_the_run_starts_anew(halfway):
    damage(halfway.path)
    files.previous_of(halfway.path).write_bytes(b"")
    steps = []
    run(
        tiny_spec("mega-ii"), [0], checkpoint=halfway, progress=lambda told: steps.append(told.step)
    )
    assert steps == [6, 12, 18]
    assert halfway.lines[-1] == "No checkpoint before it is whole: the run starts anew."


@pytest.mark.parametrize(
    ("method", "changes", "options", "sentence"),
    [
        ("er", {}, {}, "its method is 'mega-ii', not 'er'"),
        ("mega-ii", {"max_angle": 1.0}, {}, r"its max_angle is 3.14.*, not 1.0"),
        ("mega-ii", {"tasks": 4}, {}, "its tasks is 3, not 4"),
        ("mega-ii", {"benchmark": "tiny-images"}, {}, "its benchmark is 'tiny', not 'tiny-images'"),
        ("mega-ii", {}, {"seeds": [1]}, r"its seeds is \[0\], not \[1\]"),
        ("mega-ii", {}, {"deterministic": True}, "its deterministic is False, not True"),
        ("mega-ii", {}, {"record_every": 5}, "its record_every is 0, not 5"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(halfway, method, changes, options, sentence):
    options = {"seeds": [0], **options}
    with pytest.raises(EngramError, match=f"is of another run: {sentence}") as caught:
        run(tiny_spec(method, **changes), checkpoint=halfway, **options)
    assert "\n" not in str(caught.value)
    assert files.read(halfway.path).document["where"] == "task 1 of 3, step 5"


def test_one_of_another_network_or_another_torch_is_noticed(halfway, monkeypatch):
    from engram.lab.networks import MLP

    monkeypatch.setattr(torch, "__version__", "9.9")
    run(tiny_spec("mega-ii"), [0], checkpoint=halfway)
    assert "with 9.9 the run may end in other bits" in halfway.lines[0]
    monkeypatch.setattr("tiny_worlds.Tiny.network", lambda self: MLP((self.features, 7, 3)))
    with pytest.raises(EngramError, match="its parameters is 147, not 171"):
        run(tiny_spec("mega-ii"), [0], checkpoint=halfway)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (MemoryError(), MemoryError),
        (torch.OutOfMemoryError("CUDA out of memory"), torch.OutOfMemoryError),
        (ZeroDivisionError("a bug of ours"), ZeroDivisionError),
        (RuntimeError("size mismatch"), EngramError),
        (EngramError("The state must have 20 examples."), EngramError),
        (KeyError("weights"), EngramError),
        (OverflowError("int too large"), EngramError),
    ],
)
def test_only_what_a_bad_state_raises_is_called_a_bad_state(halfway, monkeypatch, fault, told):
    def fail(*_):
        raise fault

    monkeypatch.setattr(Method, "load_state_dict", fail)
    with pytest.raises(told) as caught:
        run(tiny_spec("mega-ii"), [0], checkpoint=halfway)
    assert type(caught.value) is told
    if told is EngramError:
        assert "The checkpoint has a state that is no run's" in str(caught.value)
        assert f"remove {str(halfway.path)!r} to begin anew" in str(caught.value)
    monkeypatch.undo()  # and it is still there to go on from
    assert same_bits(
        run_whole(tiny_spec("mega-ii"), [0], checkpoint=halfway),
        run_whole(tiny_spec("mega-ii"), [0]),
    )


def test_a_path_of_another_kind_and_a_negative_interval_are_refused(tmp_path):
    with pytest.raises(EngramError, match=r"path must end in \.safetensors"):
        Checkpoint(tmp_path / "store.sqlite")
    for every in (-1.0, float("nan")):
        with pytest.raises(EngramError, match=f"every must be at least 0 seconds, not {every}"):
            Checkpoint(tmp_path / "a.safetensors", every)


def test_a_folder_that_cannot_be_is_refused_before_any_training(tmp_path):
    (tmp_path / "saved").write_text("a file in its place")
    with pytest.raises(EngramError, match="No checkpoint can be saved as"):
        run(tiny_spec("van"), [0], checkpoint=checkpoint(tmp_path))


@contextmanager
def files_of_at_most(size):
    """Let the system refuse to write more, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_told_once_and_stops_no_run(halfway):
    place = checkpoint(halfway.path.parents[1])
    with files_of_at_most(1000):
        full = run_whole(tiny_spec("mega-ii"), [0], checkpoint=place)
    assert same_bits(full, run_whole(tiny_spec("mega-ii"), [0]))
    (line,) = place.lines
    assert line.startswith("The checkpoint could not be saved: ")
    assert line.endswith("that of task 1 of 3, step 5 is kept.")
    assert files.read(place.path).document["where"] == "task 1 of 3, step 5"
    assert not list(place.path.parent.glob(".*"))


def test_what_a_killed_process_left_half_written_is_removed(halfway):
    left = halfway.path.with_name(f".{halfway.path.name}.123.partial.safetensors")
    left.write_bytes(b"half")
    run(tiny_spec("mega-ii"), [0], checkpoint=halfway)
    assert not left.exists()
