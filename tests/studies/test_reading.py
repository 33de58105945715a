"""Studies are data: the paper's are what the paper has, and a bad one is refused by its line."""

import pytest

import engram.lab.protocol
from engram.app.report import printed
from engram.app.studies import read_study, study_names
from engram.errors import EngramError

NAMES = [
    "ablation", "all", "epsilon", "figure-accuracy", "figure-lca", "figure-metrics",
    "k2", "limited-examples", "many-tasks", "matched-budget", "newer-methods", "recommended",
    "released-code", "slow-baselines", "table-1", "table-2",
]  # fmt: skip
OURS = {
    "epsilon",
    "matched-budget",
    "newer-methods",
    "recommended",
    "released-code",
    "slow-baselines",
}  # which no paper has
LIMITED = {
    "van",
    "ewc",
    "pi",
    "mas",
    "rwalk",
    "gem",
    "a-gem",
    "mer",
    "prog-nn",
    "mega-i",
    "mega-ii",
}


def runs_of(name):
    """Every method of a study in every setting: how many seeds, and whether steps are recorded."""
    return {
        (runs.benchmark, spec.method, spec.tasks, spec.examples): (runs.seeds, runs.record_every)
        for runs in read_study(name).runs
        for spec in runs.specs
    }


def test_the_paper_s_studies_are_there():
    assert study_names() == NAMES


@pytest.mark.parametrize(
    ("study", "benchmarks", "seeds"),
    [
        ("table-1", ("permuted-mnist", "split-cifar"), 5),
        ("table-2", ("split-cub", "split-awa"), 10),
    ],
)
def test_a_table_has_every_number_of_the_paper_s(study, benchmarks, seeds):
    every = runs_of(study)
    for benchmark in benchmarks:
        methods = {method for where, method, *_ in every if where == benchmark}
        assert methods == {
            method
            for method in engram.lab.methods.names()
            if printed(benchmark, method, "forgetting") is not None
        }
    single = {key for key, (count, _) in every.items() if count != seeds}
    assert single <= {("split-cifar", "mer", 17, 2500)}  # which takes too long for more than one


def test_the_ablation_has_the_paper_s_five_on_four_benchmarks():
    every = runs_of("ablation")
    assert len(every) == 20
    for benchmark, method, *_ in every:
        assert printed(benchmark, method, "average_accuracy") is not None


def test_limited_examples_and_many_tasks_have_eleven_methods_and_five_seeds():
    limited, many = runs_of("limited-examples"), runs_of("many-tasks")
    assert {(tasks, n) for *_, tasks, n in limited} == {(20, 200), (20, 400), (20, 600)}
    assert {(tasks, n) for *_, tasks, n in many} == {(30, 200), (50, 200), (70, 200)}
    for every in (limited, many):
        assert {method for _, method, *_ in every} == LIMITED
        assert len(every) == 33
        assert set(every.values()) == {(5, 0)}


def test_k2_records_the_steps_of_mega_i():
    every = runs_of("k2")
    assert {(method, tasks, n) for _, method, tasks, n in every} == {
        ("mega-i", 20, 200),
        ("mega-i", 20, 600),
        ("mega-i", 20, 55_000),
    }
    assert set(every.values()) == {(5, 1)}


def test_the_accuracy_figure_has_the_line_of_joint_training():
    lines = {where for where, method, *_ in runs_of("figure-accuracy") if method == "multi-task"}
    assert lines == {"permuted-mnist", "split-cifar", "split-cub", "split-awa"}


def test_all_is_everything_of_the_paper_s():
    every = runs_of("all")
    papers = [name for name in NAMES if name not in OURS]
    assert all(every.keys() >= runs_of(name).keys() for name in papers)


def test_what_the_paper_does_not_have_is_another_study():
    every = runs_of("newer-methods")
    paper = {method for _, method, *_ in runs_of("all")}
    later = {"der", "derpp", "er-ace", "lwf", "gdumb"}
    assert not later & paper
    wanted = (("permuted-mnist", 17, 55_000), ("split-cifar", 17, 2_500))
    assert every == {
        (benchmark, method, tasks, examples): (5, 0)
        for benchmark, tasks, examples in wanted
        for method in later
    }


GOOD = """\
title = "Mine"

[[runs]]
benchmark = "permuted-mnist"
methods = [
    "van",
    "mega-i",
]
seeds = 3
tasks = 4
examples = 100

[runs.settings]
learning_rate = 0.05
epsilon = 1e-3
shared_permutations = true

[[runs]]
benchmark = "permuted-mnist-200"
methods = ["mega-ii"]
settings = { memory_per_class = 3 }
"""


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Read a study of this text, as a file in the working folder."""
    monkeypatch.chdir(tmp_path)

    def read(text):
        (tmp_path / "mine.toml").write_text(text, "utf-8")
        return read_study("mine.toml")

    return read


def test_the_mark_that_some_editors_begin_a_file_with_is_no_mistake(read):
    assert read(f"\ufeff{GOOD}") == read(GOOD)
    with pytest.raises(EngramError, match=r"^mine\.toml, line 1, titel: "):
        read('\ufefftitel = "x"\n')


def test_one_s_own_study_says_what_is_run(read):
    study = read(GOOD)
    assert (study.name, study.title) == ("mine", "Mine")
    first, second = study.runs
    assert [spec.method for spec in first.specs] == ["van", "mega-i"]
    assert first.seeds == 3
    for spec in first.specs:
        assert (spec.tasks, spec.examples) == (4, 100)
        assert spec.settings["learning_rate"] == 0.05
        assert spec.settings["shared_permutations"] is True
    assert first.specs[1].settings["epsilon"] == 1e-3  # which van does not know
    assert (second.seeds, second.specs[0].tasks, second.specs[0].examples) == (5, 20, 200)
    assert second.specs[0].settings["memory_per_class"] == 3


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "sentence"),
    [
        ('"van",', '"vam",', 6, "methods", "did you mean 'van'?); valid are a-gem, "),
        ('"mega-i",', '"van",', 6, "methods", "The method 'van' is named twice"),
        ("methods = [\n", "metods = [\n", 5, "metods", "did you mean 'methods'?); valid are bench"),
        (
            '"permuted-mnist"\n',
            '"permuted-minst"\n',
            4,
            "benchmark",
            "did you mean 'permuted-mnist'",
        ),
        ("seeds = 3", "seeds = 0", 9, "seeds", "a whole number of at least 1, not 0"),
        ("seeds = 3", "seeds = true", 9, "seeds", "a whole number of at least 1, not True"),
        ("seeds = 3", "seed = 3", 9, "seed", "did you mean 'seeds'?"),
        ("tasks = 4", "tasks = '4'", 10, "tasks", "a whole number of at least 1, not '4'"),
        ("examples = 100", "examples = 60000", 11, "examples", "must be from 1 to 55000"),
        ("examples = 100", "examples = 5", 11, "examples", "batch_size must be at most the 5"),
        ("learning_rate = 0.05", "learning_rate = -1", 14, "settings.learning_rate", "above 0"),
        (
            "learning_rate = 0.05",
            "learning_rte = 1",
            14,
            "settings.learning_rte",
            "'learning_rate'",
        ),
        ("epsilon = 1e-3", "epsilon = 'small'", 15, "settings.epsilon", "must be a number, not 's"),
        ("epsilon = 1e-3", "epsilon = [1]", 15, "settings.epsilon", "a number, a text, true or"),
        (
            "memory_per_class = 3",
            "memory_per_clas = 3",
            21,
            "settings.memory_per_clas",
            "did you m",
        ),
        (
            "memory_per_class = 3",
            "memory_per_class = 0",
            21,
            "settings.memory_per_class",
            "least 1",
        ),
        (
            'title = "Mine"',
            "titel = 1",
            1,
            "titel",
            "did you mean 'title'?); valid are exec",
        ),
        ('title = "Mine"', "title = 1", 1, "title", "title must be a text, not 1"),
        ('title = "Mine"', "", 1, "title", "A study must have a title"),
        ('title = "Mine"', 'title = "A"\ninclude = ["table-3"]', 2, "include", "did you mean 'tab"),
        ('benchmark = "permuted-mnist-200"\n', "", 18, "benchmark", "benchmark is missing"),
        ('["mega-ii"]', "[]", 20, "methods", "methods must be a list of names, not []"),
        ('["mega-ii"]', '"mega-ii"', 20, "methods", "methods must be a list of names, not 'mega"),
    ],
)
def test_a_mistake_is_told_with_its_line_its_field_and_what_is_valid(
    read, old, new, line, field, sentence
):
    assert GOOD.count(old) == 1
    with pytest.raises(EngramError) as error:
        read(GOOD.replace(old, new))
    told = str(error.value)
    assert told.startswith(f"mine.toml, line {line}, {field}: "), told
    assert sentence in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [("title = \n", 1), (GOOD.replace("seeds = 3", "seeds 3"), 9), (GOOD + "methods = [", 22)],
)
def test_what_is_not_toml_is_told_with_its_line(read, text, line):
    with pytest.raises(EngramError, match=rf"^mine\.toml, line {line}: not TOML: "):
        read(text)


@pytest.mark.parametrize(
    ("given", "field", "sentence"),
    [
        ("{ memory_per_class = 0 }", "without.memory_per_class", "must be a whole number"),
        ("{ memory_per_clas = 1 }", "without.memory_per_clas", "did you mean 'memory_per_class'"),
        ("{ memory_per_class = [1] }", "without.memory_per_class", "a number, a text, true or"),
        ("3", "without", "must be a table of settings, not 3"),
    ],
)
def test_what_cannot_be_left_out_is_refused(read, given, field, sentence):
    with pytest.raises(EngramError) as error:
        read(f"{GOOD}without = {given}\n")
    told = str(error.value)
    assert told.startswith(f"mine.toml, line 22, {field}: ")
    assert sentence in told


def test_each_ingredient_of_what_is_recommended_can_be_left_out():
    for entry in read_study("recommended").runs:
        for spec in entry.specs:
            left = dict(entry.ablation(spec))
            assert set(left) == {
                name for name, value in entry.without.items() if spec.settings[name] != value
            }
            for name, other in left.items():
                changed = {
                    key for key in spec.settings if spec.settings[key] != other.settings[key]
                }
                assert changed == {name}


def test_a_study_without_runs_is_refused(read):
    with pytest.raises(EngramError, match="must have runs"):
        read('title = "Nothing"\n')
    with pytest.raises(EngramError, match="runs must be a list of tables"):
        read('title = "One"\n[runs]\nbenchmark = "x"\n')
    with pytest.raises(EngramError, match=r"line 2, benchmark: There is no benchmark 'no such'"):
        read('title = "One"\nruns = [{ benchmark = "no such", methods = ["van"] }]\n')


def test_a_study_may_include_the_paper_s(read):
    study = read('title = "More"\ninclude = ["k2"]\n' + GOOD.split("\n", 1)[1])
    assert len(study.runs) == 3 + 2


def test_a_study_may_be_of_one_s_own_table_which_needs_several_settings(read, tmp_path):
    lines = [f"{row // 20},{row % 7},{'ny'[row % 2]}" for row in range(40)]
    (tmp_path / "sales.csv").write_text("\n".join(["city,width,bought", *lines]))
    text = """title = "Mine"
[[runs]]
benchmark = "table:sales.csv"
methods = ["van"]
[runs.settings]
target = "bought"
task = "city"
"""
    (entry,) = read(text).runs
    assert (entry.specs[0].tasks, entry.specs[0].examples) == (2, 16)
    with pytest.raises(EngramError, match=r"line 7, settings.task: There is no column .*'town'"):
        read(text.replace("city", "town"))
    with pytest.raises(EngramError, match=r"line 3, benchmark: .*'sold.csv' cannot be read"):
        read(text.replace("sales", "sold"))


def test_a_study_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(EngramError, match=r"no study 'table-3' \(did you mean 'table-"):
        read_study("table-3")
    with pytest.raises(EngramError, match="cannot be read"):
        read_study(str(tmp_path / "none.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(EngramError, match="cannot be read"):
        read_study(str(tmp_path / "binary.toml"))


SEARCHED = """
title = "Searched"

[[runs]]
benchmark = "permuted-mnist-200"
methods = ["er", "mega-i", "van"]
each = { memory = ["ring", "reservoir"], memory_per_class = [1, 5] }
search = { learning_rate = [0.1, 0.03], epsilon = [0.1, 0.01] }

[[runs]]
benchmark = "permuted-mnist-400"
methods = ["er"]
"""


@pytest.fixture
def searched(tmp_path):
    path = tmp_path / "searched.toml"
    path.write_text(SEARCHED, "utf-8")
    return str(path)


def test_an_entry_with_each_stands_for_one_of_every_combination(searched):
    entries = read_study(searched).runs
    values = [(each.settings["memory"], each.settings["memory_per_class"]) for each in entries[:-1]]
    assert values == [("ring", 1), ("ring", 5), ("reservoir", 1), ("reservoir", 5)]
    er, mega, van = entries[1].specs
    assert (er.settings["memory"], er.settings["memory_per_class"]) == ("ring", 5)
    assert "memory" not in van.settings
    grids = [
        {(each.settings["learning_rate"], each.settings.get("epsilon")) for each in trials}
        for trials in entries[1].trials
    ]
    assert grids[0] == {(0.1, None), (0.03, None)} == grids[2]
    assert grids[1] == {(0.1, 0.1), (0.1, 0.01), (0.03, 0.1), (0.03, 0.01)}
    for trial in entries[1].trials[1]:
        assert (trial.split, trial.tasks, trial.examples) == ("tuning", 3, 200)
        fixed = {**mega.settings, "learning_rate": 0, "epsilon": 0}
        assert {**trial.settings, "learning_rate": 0, "epsilon": 0} == fixed
    assert entries[-1].trials == ((),)


def test_a_part_of_a_study_is_what_is_named_of_it(searched):
    def left(*words):
        return [
            (each.benchmark, spec.method, spec.settings.get("memory"))
            for each in read_study(searched).only(words).runs
            for spec in each.specs
        ]

    assert left("permuted-mnist-400") == [("permuted-mnist-400", "er", "ring")]
    assert len(left()) == 13
    assert left("er", "memory=reservoir") == [("permuted-mnist-200", "er", "reservoir")] * 2
    some = left("van", "mega-i", "memory_per_class=5", "permuted-mnist-200")
    methods = ["van", "mega-i", "van", "van", "mega-i", "van"]
    assert [method for _, method, _ in some] == methods  # VAN has no memory, and a part in all
    with pytest.raises(EngramError, match="There is no part of the study 'gem'"):
        left("gem")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("each = { memory = [] }", "line 7, each.memory: memory must be a list of numbers"),
        ("each = { memory = [1, 1] }", "each once, not"),
        ("search = { epsilons = [1] }", "line 7, search.epsilons: There is no setting 'epsilons'"),
        ("search = { learning_rate = [-1.0] }", "line 7, search: learning_rate must be"),
        ("search_seeds = 0", "search_seeds must be a whole number of at least 1"),
    ],
)
def test_what_cannot_be_searched_is_refused_by_its_line(tmp_path, line, sentence):
    path = tmp_path / "wrong.toml"
    head = 'title = "Wrong"\n\n[[runs]]\nbenchmark = "permuted-mnist-200"\nmethods = ["er"]\n\n'
    path.write_text(head + line, "utf-8")
    with pytest.raises(EngramError) as refused:
        read_study(str(path))
    assert sentence in str(refused.value)
