"""What was erased is gone from all that the artefact holds, and does not come back."""

import shutil

import pytest
from trained_settings import SETTINGS, SMALL

import engram
from engram import production
from engram.errors import EngramError
from engram.memory import Memory
from engram.production import erasure
from engram.production.erasure import Erasures, load_memory
from examples.weeks import week

CUSTOMER = {"customer": "7"}


def held(churn, number, name, value="7"):
    """Return the ids of a customer's examples in a version, as the artefact reads it."""
    artefact = production.Artefact(churn)
    memory = load_memory(artefact.version(number), f"{name}.safetensors", Erasures(artefact))
    return {each.id for each in memory.examples() if (each.tags or {})["customer"] == value}


def on_disk(churn, text):
    """Return the files that hold a text."""
    return [path for path in churn.rglob("*") if path.is_file() and text in path.read_bytes()]


@pytest.fixture(scope="module")
def updated_once(trained, tmp_path_factory):
    churn = shutil.copytree(trained, tmp_path_factory.mktemp("updated") / "churn")
    columns = week(2, 1500, customers=40)
    marks = [
        "Zyxwv" if each == "7" else region
        for each, region in zip(columns["customer"], columns["region"], strict=True)
    ]
    columns["region"] = marks
    production.update(churn, columns, schema="extend", slices=["region"], force="all of it")
    bad = week(3, 1500, customers=40, shuffled=True)
    assert production.update(churn, bad).verdict != "accepted"
    return churn


@pytest.fixture
def updated(updated_once, tmp_path):
    """Return an artefact with an accepted and a rejected version, and a mark in every place."""
    return shutil.copytree(updated_once, tmp_path / "updated")


def test_a_customer_is_erased_from_every_version(updated):
    assert all(held(updated, number, "memory") for number in (2, 3))
    assert on_disk(updated, b"Zyxwv")
    report = production.erase(updated, where=CUSTOMER, reason="asked for it")
    assert report.trained_with == [1, 2, 3]
    assert report.weights == [1, 2, 3]
    assert report.texts == {2: 1, 3: 1}
    for number in (1, 2, 3):
        assert not held(updated, number, "memory")
        assert not held(updated, number, "exam")
    assert not on_disk(updated, b"Zyxwv")
    assert engram.load(updated).version == 2  # which still answers
    assert len(engram.load(updated).predict(week(4, 20))) == 20


def test_the_list_of_erasures_holds_no_ids(updated):
    exam = held(updated, 2, "exam")
    production.erase(updated, where=CUSTOMER)
    text = (updated / "erasures.jsonl").read_text()
    assert "customer=7" not in text
    assert '"7"' not in text
    assert not any(f'"{each}"' in text for each in exam)
    for name in ("memory", "exam"):
        memory = Memory.load(updated / "versions" / "0002" / f"{name}.safetensors")
        assert memory.erasures == []


def test_reports_no_longer_list_it(updated):
    artefact = production.Artefact(updated)
    listed = [
        id_
        for version in artefact.versions()[1:]
        for part in version.report()["parts"]
        for ids in part.get("flips", {}).values()
        for id_ in ids
    ]
    gone, kept = listed[0], listed[-1]
    production.erase(updated, ids=[gone])
    for version in artefact.versions()[1:]:
        flips = [part.get("flips", {}) for part in version.report()["parts"]]
        assert gone not in [id_ for each in flips for ids in each.values() for id_ in ids]
        page = (version.folder / "report.html").read_text()
        assert f" {gone}," not in page
        assert f">{gone}<" not in page
    assert on_disk(updated, kept.encode())


def test_an_old_copy_that_is_put_back_brings_nothing_back(updated, tmp_path):
    copies = shutil.copytree(updated / "versions", tmp_path / "copies")
    production.erase(updated, where=CUSTOMER)
    shutil.copy(copies / "0002" / "memory.safetensors", updated / "versions" / "0002")
    assert not held(updated, 2, "memory")
    shutil.rmtree(updated / "versions" / "0003")
    shutil.copytree(copies / "0003", updated / "versions" / "0003")
    assert not held(updated, 3, "exam")
    result = production.update(updated, week(4, 200, customers=3))
    assert not held(updated, result.version, "memory")
    purged = Memory.load(updated / "versions" / "0003" / "exam.safetensors")
    assert not any(each.tags["customer"] == "7" for each in purged.examples())


def test_an_interrupted_purge_is_finished_by_the_next_command(updated, monkeypatch):
    save, calls = Memory.save, []

    def dying(memory, path):
        calls.append(path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        save(memory, path)

    monkeypatch.setattr(Memory, "save", dying)
    with pytest.raises(KeyboardInterrupt):
        production.erase(updated, where=CUSTOMER)
    monkeypatch.setattr(Memory, "save", save)
    assert not held(updated, 3, "memory")  # as it is read, already
    production.update(updated, week(4, 100, customers=3))
    for version in production.Artefact(updated).versions():
        for name in ("memory", "exam"):
            memory = Memory.load(version.folder / f"{name}.safetensors")
            assert not any(each.tags["customer"] == "7" for each in memory.examples())


def test_who_comes_back_is_taken_again_unless_blocked(updated):
    production.erase(updated, where=CUSTOMER)
    new = week(4, 400, customers=20)
    result = production.update(updated, new)
    assert held(updated, result.version, "memory")
    production.erase(updated, where=CUSTOMER, block=True)
    new = week(5, 400, customers=20)
    result = production.update(updated, new)
    count = new["customer"].count("7")
    assert f"{count} examples of the blocked were left out." in result.notes
    assert not held(updated, result.version, "memory")
    seen = production.Artefact(updated).version(result.version).facts
    assert seen["examples"] + seen["exam"] <= 400 - count


def test_a_class_that_only_the_erased_had_is_answered_no_more(churn):
    columns = week(2, 1500)
    columns["left"] = [
        "complain" if each == "7" else left
        for each, left in zip(columns["customer"], columns["left"], strict=True)
    ]
    production.update(churn, columns, force="for the test")
    assert "complain" in engram.load(churn).preprocessing.target.names
    production.erase(churn, where=CUSTOMER)
    model = engram.load(churn)
    assert not on_disk(churn, b"complain")
    found = model.predict(columns)
    assert set(found.answers) <= {"leave", "stay"}
    assert found.probabilities[:, 2].max() == 0


def test_what_is_half_done_is_forgotten_too(churn):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        production.update(churn, week(2, 200), listener=stop, every=0)
    production.erase(churn, ids=["1:5"])
    assert not (churn / "work").exists()


def test_a_list_that_lost_lines_is_not_believed(updated):
    production.erase(updated, where=CUSTOMER)
    (updated / "erasures.jsonl").unlink()
    with pytest.raises(EngramError, match="put the whole file back"):
        production.update(updated, week(4, 100))
    (updated / "erasures.jsonl").write_text("{}\n")
    with pytest.raises(EngramError, match="is damaged"):
        production.update(updated, week(4, 100))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ({}, "Say what to erase"),
        ({"where": {"region": "north"}}, "'region' is no column of tags"),
        ({"where": {"customer": "1", "region": "x"}}, "one tag at a time"),
    ],
)
def test_an_erasure_of_nothing_in_particular_is_refused(churn, call, sentence):
    with pytest.raises(EngramError, match=sentence):
        production.erase(churn, **call)


def updated_with(churn, number, mark, customers):
    """Update an artefact with a week in which only these customers are in the region ``mark``."""
    columns = week(number, 400, customers=40)
    pairs = zip(columns["customer"], columns["region"], strict=True)
    columns["region"] = [mark if who in customers else region for who, region in pairs]
    columns["customer"] = [who if who in customers else f"{who}0" for who in columns["customer"]]
    return production.update(churn, columns, schema="extend", force="for the test")


def test_a_text_is_cleared_when_the_last_who_had_it_is_erased(churn):
    """One of two goes, other versions come, then the second goes: nobody is left who had it."""
    updated_with(churn, 2, "Zyxwv", {"7", "8"})
    production.erase(churn, where=CUSTOMER)
    assert on_disk(churn, b"Zyxwv")
    production.update(churn, week(3, 200, customers=3), force="for the test")
    production.erase(churn, where={"customer": "8"})
    assert not on_disk(churn, b"Zyxwv")


def test_slices_of_others_tags_that_were_theirs_alone_are_cleared(tmp_path):
    columns = week(1, 400, customers=40)
    settings = SETTINGS | {"tags": "customer,mail"}

    def mailed(columns):
        return columns | {"mail": [f"{each}@example.org" for each in columns["customer"]]}

    production.train(mailed(columns), tmp_path / "m", settings=settings, arguments=SMALL)
    production.update(tmp_path / "m", mailed(week(2, 400, customers=40)), slices=["mail"])
    assert on_disk(tmp_path / "m" / "versions" / "0002", b"mail=7@example.org")
    production.erase(tmp_path / "m", where=CUSTOMER)
    assert not on_disk(tmp_path / "m", b"=7@example.org")
    assert not on_disk(tmp_path / "m", b" 7@example.org")
    assert on_disk(tmp_path / "m", b"mail=8@example.org")


def test_categories_classes_and_reports_that_are_put_back_are_not_believed(churn, tmp_path):
    columns = week(2, 1500)
    pairs = list(zip(columns["customer"], columns["left"], columns["region"], strict=True))
    columns["left"] = ["complain" if who == "7" else left for who, left, _ in pairs]
    columns["region"] = ["Zyxwv" if who == "7" else region for who, _, region in pairs]
    production.update(churn, columns, schema="extend", slices=["region"], force="for the test")
    copy = shutil.copytree(churn / "versions" / "0002", tmp_path / "copy")
    production.erase(churn, where=CUSTOMER)
    shutil.rmtree(churn / "versions" / "0002")
    shutil.copytree(copy, churn / "versions" / "0002")
    page = production.history_page(churn)
    assert "region=south" in page
    assert "Zyxwv" not in page
    assert "complain" not in page
    model = engram.load(churn)
    assert set(model.preprocessing.target.names) == {"leave", "stay", "(erased 3)"}
    assert set(model.predict(columns).answers) <= {"leave", "stay"}
    texts = [each.text for each in model.preprocessing.inputs.categories[0].known]
    assert "Zyxwv" not in texts
    production.rollback(churn)
    assert not on_disk(churn, b"Zyxwv")
    assert not on_disk(churn, b"complain")
    for name in ("report.json", "report.html", "preprocessing.json"):
        shutil.copy(copy / name, churn / "versions" / "0002")
        assert "Zyxwv" not in production.history_page(churn)
        production.rollback(churn, to=3 - production.Artefact(churn).current.number)
        assert not on_disk(churn, b"Zyxwv")
        assert not on_disk(churn, b"complain")


def test_a_memory_file_that_is_put_back_is_purged_by_the_next_command(updated, tmp_path):
    memory = shutil.copy(updated / "versions" / "0002" / "memory.safetensors", tmp_path)
    production.erase(updated, where=CUSTOMER)
    shutil.copy(memory, updated / "versions" / "0002")
    production.rollback(updated, to=1)
    found = Memory.load(updated / "versions" / "0002" / "memory.safetensors")
    assert not any(each.tags["customer"] == "7" for each in found.examples())


def test_who_reads_may_meet_an_erasure(updated, monkeypatch):
    """A model is loaded while another process erases."""
    versions = production.Artefact.versions

    def slowly(artefact):
        monkeypatch.undo()
        production.erase(updated, where=CUSTOMER)
        return versions(artefact)

    monkeypatch.setattr(production.Artefact, "versions", slowly)
    assert engram.load(updated).predict(week(3, 5)).version == 2


def test_a_block_is_written_at_once(updated, monkeypatch):
    """Killed after its first write, it has named the subject and all of its examples."""
    exam = held(updated, 2, "exam")
    write, texts = erasure.write_text, []

    def killed(path, text):
        write(path, text)
        texts.append(text)
        raise KeyboardInterrupt

    monkeypatch.setattr(erasure, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        production.erase(updated, where=CUSTOMER, block=True)
    monkeypatch.undo()
    artefact = production.Artefact(updated)
    assert all(Erasures(artefact).has("id", each, 2) for each in exam)
    production.erase(updated, where=CUSTOMER, block=True)
    for version in artefact.versions():
        for file in version.folder.glob("report.*"):
            assert not any(f'"{each}"' in file.read_text() for each in exam)
