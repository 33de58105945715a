"""An executor on other machines: who is heard, who is given up, what is done again."""

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_laboratory import unit_of

from engram.app.runs import Checkpoints, Cluster, Store, execute, plan_units
from engram.app.runs.agent import Agent, Hello, Orders, Said, versions
from engram.app.runs.checkpoints import claim
from engram.app.runs.on_ray import RayTransport
from engram.app.runs.on_slurm import SlurmWorker
from engram.app.runs.remote import Away, Gone, RemotePool
from engram.app.runs.worker import Advanced, Began, Died, Finished, Lost, Stopped, Unfit
from engram.errors import EngramError
from listeners import Heard


class Mail:
    """A transport whose workers are the test itself: it says what comes, and sees what is sent."""

    def __init__(self, room=2):
        self.news, self.sent, self.ended, self.stopped = [], [], [], []
        self._room, self.started = room, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.append("all")

    def room(self):
        return self._room

    def start(self, count):
        keys = list(range(self.started, self.started + count))
        self.started += count
        return keys

    def send(self, key, number, payload, *, fresh):
        self.sent.append((key, pickle.loads(payload)[0], fresh))
        self.number = number

    def receive(self):
        news, self.news = self.news, []
        return news

    def stop(self, key):
        self.stopped.append(key)

    def end(self, key):
        self.ended.append(key)


def hello(node="n1", **other):
    return Hello(node, f"host of {node}", {**versions(), **other})


@pytest.fixture
def specs(laboratory):
    def make(**settings):
        texts = {key: str(value) for key, value in settings.items()}
        return laboratory.specify("permuted-mnist", "van", tasks=2, overrides=texts)

    return make


@pytest.fixture
def pool(specs):
    """A pool of three workers by mail, its mail, who follows, and three units."""
    mail, heard = Mail(), Heard()
    units = [unit_of(specs(), (seed,)) for seed in range(3)]
    with RemotePool(mail, 3, len(units), heard) as opened:
        yield opened, mail, heard, units


def polled(pool, mail, *news):
    mail.news = list(news)
    return pool.poll()


def said(mail, event, number=None):
    return Said(mail.number if number is None else number, pickle.dumps(event))


def test_a_worker_counts_from_its_hello_on(pool):
    pool, mail, heard, units = pool
    assert (mail.started, pool.has_room, pool.busy) == (3, False, False)
    assert polled(pool, mail, (0, hello()), (1, hello("n2"))) == []
    assert (pool.has_room, pool.busy, heard.staff) == (True, False, [(2, 2)])
    pool.dispatch(units[0], None)
    pool.dispatch(units[1], None)
    assert (pool.has_room, pool.busy) == (False, True)
    assert {unit.seeds for _, unit, _ in mail.sent} == {(0,), (1,)}
    (key, _, _) = mail.sent[1]
    (event,) = polled(pool, mail, (key, said(mail, Finished([]))))
    assert event[0] is units[1]
    assert pool.has_room


def test_who_was_given_up_is_not_heard(pool):
    """Its unit is another worker's by then, and whatever it has made of it is of no use."""
    pool, mail, _, units = pool
    polled(pool, mail, (0, hello()))
    pool.dispatch(units[0], None)
    ((unit, event),) = polled(pool, mail, (0, Gone("The node is down.")))
    assert unit is units[0]
    assert isinstance(event, Lost)
    assert event.reason == "The node is down. It was on host of n1."
    assert mail.started == 4  # another one is asked for
    assert polled(pool, mail, (0, said(mail, Finished([]))), (0, hello())) == []


def test_what_is_away_has_its_unit_no_more_and_may_come_back(pool):
    pool, mail, _, units = pool
    polled(pool, mail, (0, hello()))
    pool.dispatch(units[0], None)
    ((_, event),) = polled(
        pool, mail, (0, said(mail, Stopped())), (0, Away("Slurm takes it back."))
    )
    assert isinstance(event, Stopped)
    assert (pool.has_room, mail.started) == (False, 3)
    polled(pool, mail, (0, hello()))
    assert pool.has_room
    pool.dispatch(units[0], None)
    ((_, event),) = polled(pool, mail, (0, hello()))  # it died, and was started again
    assert isinstance(event, Lost)


def test_a_death_before_the_work_began_is_not_the_works(pool):
    pool, mail, heard, units = pool
    polled(pool, mail, (0, hello()))
    for _ in range(3):
        pool.dispatch(units[0], None)
        ((_, event),) = polled(pool, mail, (0, said(mail, Died("SIGKILL."))))
        assert isinstance(event, Unfit)
        pool.dispatch(units[0], None)
        *_, (_, event) = polled(
            pool, mail, (0, said(mail, Began())), (0, said(mail, Died("SIGKILL.")))
        )
        assert isinstance(event, Died)
    assert heard.remarks == []


def test_a_worker_that_only_dies_is_let_go_before_it_has_cost_every_unit(pool):
    """Torch cannot be imported there, say: each unit that it was given would come back at once."""
    pool, mail, heard, units = pool
    polled(pool, mail, (0, hello()), (1, hello("n2")))
    events = []
    while pool.has_room:
        pool.dispatch(units[0], None)
        key, *_ = mail.sent[-1]
        events += polled(pool, mail, (key, said(mail, Died("It died with exit code 1."))))
    assert [type(event) for _, event in events] == [Unfit] * 4
    assert sorted(mail.ended) == [0, 1]
    assert heard.remarks == [
        f"The worker on host of {node} is refused: It died with exit code 1."
        for node in ("n2", "n1")
    ]
    assert mail.started == 3


def test_a_machine_on_which_no_process_starts_says_so(monkeypatch, specs):
    def refuse(*_):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("engram.app.runs.agent.WorkerProcess", refuse)
    agent = Agent(Orders(pickle.dumps(None), "cpu"))
    agent.send(7, pickle.dumps((unit_of(specs(), (0,)), None)))
    ((number, event),) = agent.receive(5.0)
    assert number == 7
    assert "Cannot allocate memory" in pickle.loads(event).reason
    assert agent.receive(0.0) == []
    agent.kill()


def test_what_is_said_of_an_earlier_unit_is_not_said_of_this_one(pool):
    """A process may die when its unit has ended, and the next one is on its way to it."""
    pool, mail, _, units = pool
    polled(pool, mail, (0, hello()))
    pool.dispatch(units[0], None)
    first = mail.number
    polled(pool, mail, (0, said(mail, Finished([]))))
    pool.dispatch(units[1], None)
    assert polled(pool, mail, (0, said(mail, Died("SIGKILL."), first))) == []
    assert polled(pool, mail, (0, said(mail, Finished([]), first))) == []
    assert pool.busy


def test_other_versions_are_refused_by_name(pool):
    pool, mail, heard, _ = pool
    polled(pool, mail, (0, hello(torch="1.0")))
    assert not pool.has_room
    assert heard.remarks[0].startswith("The worker on host of n1 is refused: torch is '1.0' there")
    assert (mail.ended, mail.started) == ([0], 3)  # nor is another asked for
    polled(pool, mail, (1, hello(torch="1.0")))
    with pytest.raises(EngramError, match=r"No worker is left\. .*host of n1.*torch is '1.0'"):
        polled(pool, mail, (2, hello(torch="1.0")))


def test_workers_that_cannot_be_started_are_not_asked_for_forever(pool):
    pool, mail, _, _ = pool

    def fail_for_long():
        for _ in range(20):
            alive = range(mail.started - 3, mail.started)
            polled(pool, mail, *((key, Gone("No module named 'engram'.")) for key in alive))

    with pytest.raises(EngramError, match="No worker can be started: No module named"):
        fail_for_long()
    assert mail.started < 10


def test_stop_saves_what_is_trained_and_ends_the_rest(pool):
    pool, mail, _, units = pool
    polled(pool, mail, (0, hello()), (1, hello()))
    pool.dispatch(units[0], None)
    key = mail.sent[0][0]
    pool.stop()
    assert mail.stopped == [key]
    assert sorted(mail.ended) == sorted({0, 1, 2} - {key})
    assert (pool.busy, pool.has_room) == (True, False)
    polled(pool, mail, (key, said(mail, Stopped())))
    assert not pool.busy


def test_no_room_is_one_sentence():
    with (
        pytest.raises(EngramError, match="no room for a worker"),
        RemotePool(Mail(room=0), None, 1, Heard()),
    ):
        pass


class SilentRay:
    """A Ray cluster in which nobody answers, and which may forget a driver's node."""

    def __init__(self):
        self.begun, self.ended, self.alive, self.actors = 0, 0, True, 0
        self.exceptions = SimpleNamespace(RayError=ValueError, OutOfMemoryError=ValueError)

    def is_initialized(self):
        return False

    def init(self, **_):
        self.begun += 1
        self.alive = True

    def shutdown(self):
        self.ended += 1

    def nodes(self):
        return [{"NodeID": "mine", "Alive": self.alive}, {"NodeID": "other", "Alive": True}]

    def get_runtime_context(self):
        return SimpleNamespace(get_node_id=lambda: "mine")

    def wait(self, refs, **_):
        return [], refs

    def remote(self, **_):
        return lambda _: SimpleNamespace(remote=self._actor)

    def _actor(self, _):
        self.actors += 1
        return SimpleNamespace(hello=SimpleNamespace(remote=object))

    def kill(self, actor, **_):
        del actor
        self.actors -= 1


def test_a_driver_that_the_cluster_has_given_up_connects_again(monkeypatch):
    """No worker would ever be started for it, though the others are there again."""
    ray = SilentRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr("engram.app.runs.on_ray._SILENT", -1.0)
    with RayTransport(Cluster("ray:auto"), Orders(b"", "cpu")) as transport:
        keys = transport.start(2)
        assert (transport.receive(), ray.begun) == ([], 1)  # the cluster may be full
        ray.alive = False
        away = transport.receive()
        assert away == [(key, Away("The cluster had given up the driver's node.")) for key in keys]
        assert (ray.begun, ray.ended, ray.actors) == (2, 1, 4)  # each is asked for again
        assert transport.receive() == []
    assert ray.ended == 2


class Here(Mail):
    """A transport to agents in this process, whose workers are real processes."""

    def __init__(self, run):
        super().__init__()
        self._orders = Orders(pickle.dumps(run), "cpu", interval=0.1)
        self._agents = {}

    def start(self, count):
        keys = super().start(count)
        for key in keys:
            self._agents[key] = Agent(self._orders, f"n{key}")
            self.news.append((key, self._agents[key].hello()))
        return keys

    def send(self, key, number, payload, *, fresh):
        self._agents[key].send(number, payload, fresh)

    def receive(self):
        news = super().receive()
        for key, agent in self._agents.items():
            news += [(key, event) for event in agent.receive(0.05)]
        return news

    def stop(self, key):
        self._agents[key].stop()

    def end(self, key):
        self._agents.pop(key).kill()

    def __exit__(self, *_):
        for agent in self._agents.values():
            agent.kill()


class InThisProcess(Cluster):
    """A cluster of one's own, whose workers are held by agents in this process."""

    def open(self, units, run, device, listener):  # noqa: ARG002
        return RemotePool(Here(run), self.workers, len(units), listener)


@pytest.fixture(autouse=True)
def _submitit_is_there(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)


def test_runs_are_those_of_this_machine_and_a_run_that_kills_its_worker_twice_is_set_aside(
    laboratory, specs, store, tmp_path
):
    kill = specs(fault="kill", faulty_seed=1, trace=tmp_path / "trace")
    units = plan_units([specs(), kill], range(3), store, device="cpu")
    cluster, heard = InThisProcess("slurm", workers=2, shared=tmp_path / "shared"), Heard()
    arguments = {"device": "cpu", "command": "c", "listener": heard, "cluster": cluster}
    assert execute(units, store, laboratory.run, **arguments) == 1
    ((unit, reason),) = heard.failed
    assert (unit.seeds, "SIGKILL" in reason) == ((1,), True)
    assert [sum("run again" in line for _, line in heard.lines), len(heard.stored)] == [1, 5]
    begun = [json.loads(line)[1] for line in (tmp_path / "trace").read_text().splitlines()]
    assert sorted(begun) == [[0], [1], [1], [2]]
    for row in store.rows():
        assert row.outcome["accuracy"] == laboratory.accuracies(specs(), row.seed)
        assert row.outcome["facts"]["threads"] == "1"
        assert row.outcome["facts"]["pid"] != os.getpid()


class Scripted(Cluster):
    """A cluster of one worker, of which the test says what becomes of its units."""

    events = ()

    def open(self, units, run, device, listener):  # noqa: ARG002
        return ScriptedPool(self.events)


class ScriptedPool:
    def __init__(self, events):
        self._events, self.unit = list(events), None

    busy = property(lambda self: self.unit is not None)
    has_room = property(lambda self: self.unit is None)

    def dispatch(self, unit, checkpoint):  # noqa: ARG002
        self.unit = unit

    def poll(self):
        event, unit = self._events.pop(0), self.unit
        if not isinstance(event, Advanced):
            self.unit = None
        return [(unit, event)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize(("steps", "failures"), [(range(1, 10), 0), ([3] * 9, 1), ([0] * 9, 1)])
def test_a_run_that_gets_further_each_time_may_lose_any_number_of_machines(
    laboratory, specs, store, monkeypatch, steps, failures
):
    lost = [
        event
        for step in steps
        for event in (Advanced(laboratory.Progress(0, 1, step, 10)), Lost("It was pre-empted."))
    ]
    done = Finished(laboratory.run(specs(), [0]))
    monkeypatch.setattr(Scripted, "events", (*lost, done))
    units = plan_units([specs()], range(1), store, device="cpu")
    cluster = Scripted("slurm", workers=1, shared=store.path.parent)
    arguments = {"device": "cpu", "command": "c", "listener": Heard(), "cluster": cluster}
    assert execute(units, store, laboratory.run, **arguments) == failures
    assert len(store.rows()) == 1 - failures


def test_what_has_come_is_stored_whatever_ends_the_work(laboratory, specs, store, monkeypatch):
    """Results wait for each other while storing takes long; an error must not lose them."""
    monkeypatch.setattr("engram.app.runs.executor._STORING", 1e9)
    monkeypatch.setattr("engram.app.runs.executor._LONGEST", 1e9)
    units = plan_units([specs()], range(3), store, device="cpu")
    done = [Finished(laboratory.run(*zip(*unit.runs, strict=True))) for unit in units[:2]]

    class Failing(ScriptedPool):
        def poll(self):
            if not self._events:
                raise EngramError("No worker is left.")
            return super().poll()

    monkeypatch.setattr(Scripted, "open", lambda *_: Failing(done))
    cluster = Scripted("slurm", workers=1, shared=store.path.parent)
    arguments = {"device": "cpu", "command": "c", "listener": Heard(), "cluster": cluster}
    with pytest.raises(EngramError, match="No worker is left"):
        execute(units, store, laboratory.run, **arguments)
    assert sorted(row.seed for row in store.rows()) == [0, 1]


def test_a_run_is_stored_once_whoever_computes_it(specs, store, make_row, laboratory):
    (unit,) = plan_units([specs()], range(1), store, device="cpu")
    store.add([make_row("van", 0, tasks=2)])  # by another driver, meanwhile
    arguments = {"device": "cpu", "command": "c", "listener": Heard()}
    assert execute([unit], store, laboratory.run, **arguments) == 0
    assert len(store.rows()) == 1
    (again,) = plan_units([specs()], range(1), store, device="cpu", again=True)
    for _ in range(2):  # the second is a retry of the first
        assert execute([again], store, laboratory.run, **arguments) == 0
    assert len(store.rows()) == 2


def test_every_attempt_at_a_unit_has_a_file_of_its_own(tmp_path, laboratory):
    """A worker that was thought dead writes on, and nobody reads it; a later one goes on."""
    kind = laboratory.Checkpoint
    place = tmp_path / "a.0.safetensors"
    first = claim(place, kind)
    assert not first.exists()  # there is nothing to go on from
    first.write_text(json.dumps({"saved": "by the first"}))
    second = claim(place, kind)
    assert second != first
    assert json.loads(second.read_text()) == {"saved": "by the first"}
    new = first.with_suffix(".new")
    new.write_text(json.dumps({"saved": "by the first, which lives"}))
    new.replace(first)  # as checkpoints are written
    assert json.loads(second.read_text()) == {"saved": "by the first"}
    os.utime(second, (time.time() + 60,) * 2)
    assert json.loads(claim(place, kind).read_text()) == {"saved": "by the first"}


def test_checkpoints_of_a_shared_folder_go_with_their_results(
    tmp_path, store, specs, make_row, laboratory
):
    checkpoints = Checkpoints(store, 5, tmp_path / "shared")
    other = Checkpoints(Store(tmp_path / "other" / "store.sqlite"), 5, tmp_path / "shared")
    assert checkpoints.folder != other.folder
    unit = unit_of(specs(), (0,))
    path = checkpoints.path(unit, "cpu")
    assert not checkpoints.saved(path)
    checkpoints.make_folder()
    attempt = laboratory.Checkpoint(claim(path, laboratory.Checkpoint))
    attempt.save(unit.specs, unit.seeds)
    assert checkpoints.saved(path)
    checkpoints.remove_stale()
    assert checkpoints.saved(path)
    store.add([make_row("van", 0, tasks=2)])
    checkpoints.remove_stale()
    assert not checkpoints.folder.exists()


@pytest.mark.parametrize(("killed", "status"), [(False, 1), (True, 0)])
def test_an_agent_ends_its_process_where_no_driver_is_heard_unless_it_was_killed(killed, status):
    held = (
        "import time\n"
        "from engram.app.runs.agent import Agent, Orders\n"
        "agent = Agent(Orders(b'', 'cpu', lease=0.1))\n"
        f"{'agent.kill()' if killed else ''}\n"
        f"time.sleep({0.5 if killed else 60})\n"
    )
    ended = subprocess.run([sys.executable, "-c", held], capture_output=True, timeout=50)
    assert (ended.returncode, ended.stderr) == (status, b"")


def test_a_job_ends_as_soon_as_its_driver_has_put_its_mail_away(tmp_path):
    """What the driver wrote last may have gone with the folder, and Slurm may be slow to cancel."""
    for name in ("to", "from"):
        (tmp_path / "mail" / name).mkdir(parents=True)
    (tmp_path / "mail" / "driver").write_text("0")
    worker = SlurmWorker(tmp_path / "mail", 1, Orders(pickle.dumps(None), "cpu"))
    job = threading.Thread(target=worker, daemon=True)
    job.start()
    while not any((tmp_path / "mail" / "from").iterdir()):
        time.sleep(0.05)
    assert job.is_alive()
    shutil.rmtree(tmp_path / "mail")
    job.join(timeout=60)
    assert not job.is_alive()


def test_no_source_is_sent_to_be_run_unless_it_is_trusted(monkeypatch, specs, tmp_path):
    (tmp_path / "mine.py").write_text("")
    monkeypatch.setenv("ENGRAM_PLUGINS", str(tmp_path / "mine.py"))
    units = [unit_of(specs(), (0,))]
    with pytest.raises(EngramError, match=r"mine\.py', unless you trust it .*: --trust-plugins"):
        Cluster("ray", workers=1).open(units, None, "cpu", Heard())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"executor": "rey"}, "There is no executor 'rey'"),
        ({"executor": "local", "workers": 2}, "are for an executor that is not local"),
        ({"executor": "local:x"}, "executor must be local, without more"),
        ({"executor": "ray", "workers": 0}, "workers must be from 1 to 100,000, not 0"),
        ({"executor": "ray", "gpus_per_worker": 2}, "gpus-per-worker must be from 0 to 1"),
        ({"executor": "ray", "slurm": {"a": 1}}, "slurm options are for the executor slurm"),
        ({"executor": "slurm", "workers": 2}, "give it with --shared"),
        ({"executor": "slurm", "shared": Path("s")}, "needs to know how many: give --workers"),
        (
            {"executor": "slurm", "shared": Path("s"), "workers": 1, "gpus_per_worker": 0.5},
            "must be 0 or 1 on Slurm",
        ),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(given, sentence):
    with pytest.raises(EngramError, match=sentence):
        Cluster(**given).check()


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EngramError, match=r'needs ray: pip install "engram-torch\[ray\]"'):
        Cluster("ray").check()


def test_the_workers_device_is_that_of_their_gpus():
    assert Cluster("ray").device("auto") == Cluster("ray").device("cpu") == "cpu"
    assert Cluster("ray", gpus_per_worker=0.25).device("auto") == "cuda"
    with pytest.raises(EngramError, match="device must be cpu for workers with 0 GPUs"):
        Cluster("ray").device("cuda")


def test_stacks_are_smaller_where_workers_would_have_none(store, specs):
    def sizes(workers, **more):
        units = plan_units([specs()], range(10), store, device="cuda", workers=workers, **more)
        return [len(unit.runs) for unit in units]

    assert sizes(1) == sizes(2) == [5, 5]
    assert sizes(4) == [3, 3, 2, 2]
    assert sizes(100) == [1] * 10
    assert sizes(100, deterministic=True) == [5, 5]  # as on one machine: the same bits
