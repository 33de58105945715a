"""SIGKILL at random moments: a version always answers, and what is erased stays erased."""

import os
import random
import shutil
import signal
import time
import traceback
from functools import partial

import numpy as np
import pytest
import torch

import engram
from engram import production
from engram.memory import Memory
from engram.production.erasure import Erasures, load_memory
from examples.weeks import week

KILLS = 50
ASKED = {name: column for name, column in week(6, 40).items() if name != "left"}


def in_a_process(work):
    """Return the id of a new process that does the work."""
    child = os.fork()
    if child:
        return child
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def killed(work, seconds):
    """Do the work in a process that is killed after some time; return whether it was."""
    child = in_a_process(work)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def duration(work):
    started = time.perf_counter()
    assert os.waitpid(in_a_process(work), 0)[1] == 0
    return time.perf_counter() - started


def answers(folder, number):
    return engram.load(folder, number).predict(ASKED).probabilities


def customers(memory):
    return {(each.tags or {})["customer"] for each in memory.examples()}


@pytest.fixture(scope="module")
def two_versions(trained, tmp_path_factory):
    folder = shutil.copytree(trained, tmp_path_factory.mktemp("two") / "churn")
    production.update(folder, week(2, 400, customers=40), force="to have two", slices=["region"])
    return folder


@pytest.mark.slow
def test_whatever_is_killed_leaves_a_model_that_answers(two_versions, tmp_path):
    torch.set_num_threads(1)
    draw = random.Random(0)
    known = {number: answers(two_versions, number) for number in (1, 2)}
    works = {
        "update": lambda folder: production.update(
            folder, week(3, 400, customers=40), force="whatever it is", every=0.05
        ),
        "rollback": lambda folder: production.rollback(folder, to=1),
        "erase": lambda folder: production.erase(folder, where={"customer": "7"}),
    }
    lasted = {}
    for name, work in works.items():
        folder = shutil.copytree(two_versions, tmp_path / name)
        lasted[name] = duration(lambda work=work, folder=folder: work(folder))
    for kill in range(KILLS):
        name = list(works)[kill % 3]
        folder, moment = tmp_path / str(kill), draw.uniform(0, lasted[name])
        shutil.copytree(two_versions, folder)
        while not killed(partial(works[name], folder), moment):  # it came after its end
            shutil.rmtree(folder)
            shutil.copytree(two_versions, folder)
            moment *= 0.8
        current = production.Artefact(folder).current.number
        found = engram.load(folder).predict(ASKED)
        assert found.version == current
        if current in known:
            assert np.array_equal(found.probabilities, known[current])
        erased = (folder / "erasures.jsonl").exists()
        # The same command again goes on, and ends as if it had not been killed.
        done = {"update": 3, "rollback": 1}.get(name) == current
        if not done:
            works[name](folder)
        if name == "update":
            assert production.Artefact(folder).current.number == 3
            assert done or not (folder / "work").exists()
        if name == "rollback":
            assert np.array_equal(answers(folder, None), known[1])
        if name == "erase" or erased:
            artefact = production.Artefact(folder)
            for version in artefact.versions():
                for file in ("memory.safetensors", "exam.safetensors"):
                    assert "7" not in customers(Memory.load(version.folder / file))
                    held = load_memory(version, file, Erasures(artefact))
                    assert "7" not in customers(held)
        leftovers = [path for path in folder.rglob(".*") if ".partial" in path.name]
        assert not leftovers
        shutil.rmtree(folder)


@pytest.mark.slow
def test_what_was_erased_is_gone_from_the_moment_that_it_is_listed(two_versions, tmp_path):
    torch.set_num_threads(1)
    draw = random.Random(1)

    def erase(folder):
        production.erase(folder, where={"customer": "7"})

    lasted = duration(lambda: erase(shutil.copytree(two_versions, tmp_path / "whole")))
    for kill in range(10):
        folder = shutil.copytree(two_versions, tmp_path / str(kill))
        killed(lambda folder=folder: erase(folder), draw.uniform(0.2, 1.0) * lasted)
        if not (folder / "erasures.jsonl").exists():
            continue
        production.rollback(folder, to=1)
        result = production.update(folder, week(4, 60, customers=3), force="after it")
        artefact = production.Artefact(folder)
        for version in artefact.versions():
            for file in ("memory.safetensors", "exam.safetensors"):
                assert "7" not in customers(Memory.load(version.folder / file))
        assert result.current == 3
