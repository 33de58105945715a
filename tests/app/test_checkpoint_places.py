"""Where units are saved: one place each, until their results are stored."""

import pytest
from fake_laboratory import unit_of

from engram.app.runs import Checkpoints, Unit, record


@pytest.fixture
def specs(laboratory):
    def make(method="van"):
        return laboratory.specify("permuted-mnist", method, tasks=2)

    return make


def test_a_run_has_one_place_until_its_result_is_stored(store, specs, make_row):
    spec = specs()

    def place(*given, device="cpu", **options):
        checkpoints = Checkpoints(store, 5)
        return checkpoints.path(unit_of(spec, *given, **options), device)

    first = place((0,))
    assert first == place((0,))
    assert first.parent == store.path.with_name("store-checkpoints")
    others = [
        place((1,)),
        place((0, 1)),
        place((0,), device="cuda"),
        place((0,), deterministic=True),
        place((0,), record_every=1),
    ]
    assert len({first, *others}) == 6
    assert place((0,), device="cuda:1") == place((0,), device="cuda")
    store.add([make_row("van", 0, tasks=2, **spec.settings)])
    assert place((0,)).name == first.name.replace(".0.", ".1.")


def test_a_checkpoint_goes_when_its_result_is_stored_and_stays_when_it_is_not(
    store, laboratory, specs, make_row
):
    checkpoints = Checkpoints(store, 5)
    stored, waiting = specs(), specs("mega-i")
    for spec in (stored, waiting):
        place = checkpoints.path(unit_of(spec, (0,)), "cpu")
        laboratory.Checkpoint(place).save([spec], [0])
    foreign = checkpoints.folder / "notes.safetensors"
    foreign.write_text("not ours")
    store.add([make_row("van", 0, tasks=2, **stored.settings)])
    checkpoints.remove_stale()
    left = {path.name for path in checkpoints.folder.iterdir()}
    assert left == {checkpoints.path(unit_of(waiting, (0,)), "cpu").name, "notes.safetensors"}
    # An --again that was stopped is not stale: the store has no newer result.
    again = checkpoints.path(unit_of(stored, (0,)), "cpu")
    laboratory.Checkpoint(again).save([stored], [0])
    checkpoints.remove_stale()
    assert again.exists()


def test_runs_that_differ_in_a_setting_have_a_place_of_their_own(store, laboratory):
    first, *_, last = laboratory.tuning_specs("permuted-mnist", "mega-i")
    checkpoints = Checkpoints(store, 5)
    units = [Unit(((first, 0), (other, 1))) for other in (first, last)]
    units.append(Unit(((last, 0), (first, 1))))
    places = [checkpoints.path(unit, "cpu") for unit in units]
    assert len(set(places)) == 3
    for place, unit in zip(places, units, strict=True):
        laboratory.Checkpoint(place).save(unit.specs, unit.seeds)
    store.add([record(last, laboratory.run(last, [1])[0], "engram tune")])
    checkpoints.remove_stale()  # of the one that had this run, though not in the first place
    assert [place.exists() for place in places] == [True, False, True]
    now = checkpoints.path(units[1], "cpu")
    assert now.name == places[1].name.replace(".0.", ".1.")


def test_an_empty_folder_of_checkpoints_goes(store):
    checkpoints = Checkpoints(store, 5)
    checkpoints.make_folder()  # of a process that was killed before it could remove it
    checkpoints.remove_stale()
    assert not checkpoints.folder.exists()
    checkpoints.remove_stale()
