"""The weeks of a model in production, whatever it reads: five updates, one of a bad week."""

import engram
from engram import production
from engram.memory import Memory


def told(folder, weeks, asked, *, erased, gate, trust_code=False):
    """Update an artefact that was trained on week 1 by the others, and go through what may happen.

    ``weeks`` has weeks 2 and 3, a bad week, and weeks 4 and 5; in week 3 there is a new class.
    ``erased`` is what is erased at the end, as `production.erase` takes it.
    """
    trust = {"trust_code": trust_code}
    verdicts = []
    for number, data in weeks:
        result = production.update(folder, data, period=number, gate=gate, **trust)
        verdicts.append((number, result.verdict, result.current, result.report["reasons"]))
    assert [each[1:3] for each in verdicts] == [
        ("accepted", 2),
        ("accepted", 3),
        ("rejected", 3),
        ("accepted", 5),
        ("accepted", 6),
    ], verdicts
    artefact = production.Artefact(folder)
    before, after = (
        engram.load(folder, number, **trust).preprocessing.target.names for number in (2, 3)
    )
    assert after[: len(before)] == before
    assert len(after) == len(before) + 1
    assert "contradict" in " ".join(artefact.version(4).report()["reasons"])

    answers = {number: engram.load(folder, number, **trust).predict(asked) for number in (5, 6)}
    assert production.rollback(folder, reason="for the test") == 5
    found = engram.load(folder, **trust).predict(asked)
    assert {row[-1] for row in found.rows()} == {5}
    assert (found.probabilities == answers[5].probabilities).all()
    assert production.rollback(folder, to=6) == 6

    report = production.erase(folder, **erased)
    assert report.memory or report.exam
    for version in artefact.versions():
        for name in ("memory", "exam"):
            memory = Memory.load(version.folder / f"{name}.safetensors")
            for each in memory.examples():
                assert str(each.id) not in erased.get("ids", ())
                for tag, value in erased.get("where", {}).items():
                    assert each.tags[tag] != value
    found = engram.load(folder, **trust).predict(asked)
    assert {row[-1] for row in found.rows()} == {6}
    assert (found.probabilities == answers[6].probabilities).all()
    return found
