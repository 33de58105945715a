"""What third parties bring is found, loaded when it is asked for, and named if it is at fault."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engram import plugins
from engram.app.studies import read_study
from engram.errors import EngramError
from engram.lab import methods, protocol
from engram.plugins import Registry

RULE = """
from dataclasses import dataclass

import torch

from engram.rules import Rule, register


@dataclass(frozen=True)
class Half(Rule):
    share: float = 0.5
    needs_gram = False
    reference = "pooled"

    def weigh(self, losses, gram):
        return torch.full_like(losses, self.share)


register("half", Half)
"""


pytestmark = pytest.mark.usefixtures("plugins_apart")


@pytest.fixture
def write(tmp_path):
    def written(name, text=RULE):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return written


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution of one module, as pip leaves it: a module and its metadata."""

    def installed(module, text=RULE, points=("rules", "half", "half"), version="1.0", dist=None):
        dist = dist or f"engram-{module}"
        folder = tmp_path / dist
        info = folder / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (folder / f"{module}.py").write_text(text)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        kind, name, where = points
        (info / "entry_points.txt").write_text(f"[engram.{kind}]\n{name} = {where}\n")
        (info / "RECORD").write_text(f"{module}.py,,\n")
        monkeypatch.syspath_prepend(folder)
        return folder

    return installed


def test_a_file_is_a_plugin_and_its_digest_a_part_of_what_results_are_filed_under(write):
    file = write("half.py")
    plugins.use_files([file])
    assert os.environ[plugins.FILES] == str(file)
    spec = protocol.specify("permuted-mnist", "half", overrides={"share": "0.4"})
    digest = hashlib.sha256(RULE.encode()).hexdigest()
    assert spec.settings["share"] == 0.4
    assert spec.identity()["plugins"] == {"rules/half": f"sha256:{digest}"}
    assert "plugins" not in protocol.specify("permuted-mnist", "mega-ii").identity()


def test_what_a_file_imports_is_digested_unless_it_is_installed(write):
    file = write("half.py", "import numpy, helper, package.part\n" + RULE)
    write("helper.py", "x = 1")
    write("package/__init__.py", "")
    write("package/part.py", "from . import other\nfrom .other import y")
    other = write("package/other.py", "y = 2")
    found = plugins.local_modules(file)
    assert sorted(found) == ["helper", "package", "package.other", "package.part"]
    before = plugins.source_digest(file)
    other.write_text("y = 3")
    assert plugins.source_digest(file) != before


def test_an_installed_plugin_is_loaded_when_it_is_asked_for_and_known_by_its_version(install):
    install("half")
    assert "half" in methods.registry.RULES.names()
    assert "half" not in sys.modules
    protocol.specify("permuted-mnist", "mega-ii")
    assert "half" not in sys.modules
    spec = protocol.specify("permuted-mnist", "half")
    assert spec.identity()["plugins"] == {"rules/half": "engram-half 1.0"}


def test_an_entry_point_may_name_the_thing_itself(install):
    install("half", RULE.replace('register("half", Half)', ""), ("rules", "half", "half:Half"))
    spec = protocol.specify("permuted-mnist", "half")
    assert spec.identity()["plugins"] == {"rules/half": "engram-half 1.0"}


def test_one_that_is_installed_to_be_edited_is_known_by_its_source_too(install):
    folder = install("half")
    (info,) = folder.glob("*.dist-info")
    (info / "direct_url.json").write_text(json.dumps({"url": "", "dir_info": {"editable": True}}))
    spec = protocol.specify("permuted-mnist", "half")
    digest = hashlib.sha256(RULE.encode()).hexdigest()
    assert spec.identity()["plugins"] == {"rules/half": f"engram-half 1.0 sha256:{digest}"}


BROKEN = [
    ("raise RuntimeError('no luck')", "RuntimeError in line 1: no luck."),
    ("x = 1\n\nimport nowhere_to_be_found", "ModuleNotFoundError in line 3: No module named "),
    ("def f(:", "SyntaxError in line 1: invalid syntax."),
    ("import sys\nsys.exit(3)", "SystemExit in line 2: 3."),
    ("x = 1", "it registers nothing; see docs/extending."),
    (RULE.replace('"half"', '"gem"'), "name must not be 'gem', which engram.rules.gem has regist"),
    (RULE.replace('"half"', '"Half!"'), "name must be of small letters, digits and single hyphens"),
    (RULE.replace(", Half)", ", 3)"), "must be a class that extends Rule"),
    (RULE.replace("class Half(Rule)", "class Half"), "must be a class that extends Rule"),
    *(
        (re.sub(rf"(?m)^ +{fact}.*$", "", RULE), f"The rule Half must say its {fact}; see Rule.")
        for fact in ("needs_gram", "reference")
    ),
]


@pytest.mark.parametrize(("text", "sentence"), BROKEN)
def test_a_broken_plugin_is_named_and_leaves_nothing_behind(write, text, sentence):
    file = write("mine.py", text)
    path = sys.path.copy()
    with pytest.raises(EngramError) as caught:
        plugins.use_files([file])
    assert str(caught.value).startswith(f"The plugin {file} cannot be used: ")
    assert sentence in str(caught.value)
    assert "mine" not in sys.modules
    assert sys.path == path
    assert methods.registry.RULES.listed() == [
        each for each in methods.registry.RULES.listed() if each.origin.startswith("engram.")
    ]


def test_a_broken_distribution_is_named_and_breaks_nothing_that_does_without(install):
    install("half", "raise RuntimeError('no luck')")
    protocol.specify("permuted-mnist", "mega-ii")
    with pytest.raises(EngramError) as caught:
        protocol.specify("permuted-mnist", "half")
    assert str(caught.value) == (
        "The plugin engram-half 1.0 cannot be used: RuntimeError in line 1 of half.py: no luck."
    )


def test_a_plugin_that_imports_another_one_does_not_take_what_that_one_has(write, install):
    install("half")
    plugins.use_files([write("mine.py", "import half\n" + RULE.replace('"half"', '"mine"'))])
    found = {name: methods.registry.RULES.origin(name).words for name in ("half", "mine")}
    assert found == {"half": "engram-half 1.0", "mine": str(write("mine.py"))}
    assert "engram-half 1.0" in [each.origin for each in methods.registry.RULES.listed()]


def test_two_plugins_with_one_name_are_refused_by_name(write):
    plugins.use_files([write("one.py")])
    with pytest.raises(EngramError, match=r"two.py cannot be used: .*'half', which .*one.py has"):
        plugins.use_files([write("two.py")])


def test_two_distributions_with_one_name_are_refused_by_name(install):
    install("half", dist="engram-a")
    install("half", dist="engram-b", version="2.0")
    with pytest.raises(EngramError, match=r"The rule 'half' is offered by .*: one of them must be"):
        protocol.specify("permuted-mnist", "half")
    refused = {each.origin: each.refused for each in methods.registry.RULES.listed()}
    assert refused["engram-a 1.0"] == "engram-b 2.0 has the name too"


def test_a_distribution_cannot_take_a_name_of_ours(install):
    install("evil", RULE.replace('"half"', '"gem"'), ("rules", "gem", "evil"))
    assert methods.registry.RULES.get("gem").__module__ == "engram.rules.gem"
    (refused,) = [each for each in methods.registry.RULES.listed() if each.refused]
    assert refused.origin == "engram-evil 1.0"
    assert refused.refused == "the name is that of engram.rules.gem"


def test_a_rule_whose_fields_are_settings_of_every_method_is_refused(write):
    plugins.use_files([write("half.py", RULE.replace("share", "batch_size"))])
    with pytest.raises(EngramError, match="has a field 'batch_size', which is a setting of every"):
        protocol.specify("permuted-mnist", "half")


RAISING = RULE.replace("return torch.full_like(losses, self.share)", "raise ValueError('no luck')")
CALLING = RULE.replace("torch.full_like(losses, self.share)", "losses @ torch.ones(9, 9)")


@pytest.mark.parametrize(
    ("text", "reason"),
    [(RAISING, "ValueError in line 16: no luck."), (CALLING, "RuntimeError in line 16: mat1 and ")],
)
def test_a_plugin_that_fails_at_work_is_named_with_its_own_line(write, text, reason):
    file = write("half.py", text)
    plugins.use_files([file])
    with pytest.raises((ValueError, RuntimeError)) as caught:
        methods.registry.RULES.get("half")()(torch.ones(2, 2))
    assert plugins.fault(caught.value).startswith(f"The plugin {file} failed: {reason}")


def test_an_installed_plugin_that_fails_at_work_is_named(install):
    install("half", RAISING)
    with pytest.raises(ValueError, match="no luck") as caught:
        methods.registry.RULES.get("half")()(torch.ones(2, 2))
    assert plugins.fault(caught.value) == (
        "The plugin engram-half 1.0, half.py, failed: ValueError in line 16: no luck."
    )


def test_what_is_raised_in_no_plugin_names_none(write):
    plugins.use_files([write("half.py")])
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0  # noqa: B018
    assert plugins.fault(caught.value) is None


def test_a_plugin_that_raises_before_anything_is_trained_is_told_in_a_sentence(engram, write):
    more = "    def __post_init__(self):\n        raise OSError('no luck')\n\n    def weigh"
    file = write("half.py", RULE.replace("    def weigh", more))
    told = engram("run", "permuted-mnist", "half", plugin=file)
    sentence = f"engram: The plugin {file} failed: OSError in line 16: no luck.\n"
    assert (told.code, told.err) == (2, sentence)


def test_what_a_plugin_prints_is_nothing_of_a_command_s_output(engram, write):
    file = write("half.py", f"print('loud')\n{RULE}")
    told = engram("list", "rules", "--json", plugin=file)
    assert "half" in {each["name"] for each in json.loads(told.out)["rules"]}
    assert "loud" in told.err


@pytest.mark.parametrize("file", ["nowhere.py", "", "a\0b", "/etc"])
def test_a_file_that_is_none_is_refused(file):
    with pytest.raises(EngramError, match="plugin must be a Python file that exists"):
        plugins.use_files([file])


def test_a_file_named_like_another_module_is_refused(write):
    for name, where in [("json.py", "Python's library"), ("numpy.py", "numpy")]:
        with pytest.raises(EngramError, match=f"is there already, in .*{where}"):
            plugins.use_files([write(name)])


def test_a_plugin_that_is_changed_after_the_command_is_refused(write):
    file = write("half.py")
    plugins.use_files([file])
    spec = protocol.specify("permuted-mnist", "half", tasks=1, examples=10)
    spec.identity()
    for state in (plugins._loaded, sys.modules):
        for name in [name for name in state if "half" in str(name)]:
            del state[name]
    for registry in plugins.REGISTRIES.values():
        registry._held.pop("half", None)
    file.write_text(RULE + "\n")
    with pytest.raises(EngramError, match="was changed after the command was given"):
        spec.check_data()


def test_a_result_s_names_load_nothing(install):
    install("half")
    with plugins.loading_nothing(), pytest.raises(EngramError, match="There is no method 'half'"):
        protocol.specify("permuted-mnist", "half")
    assert "half" not in sys.modules


def test_a_study_names_its_plugins_beside_it(write):
    write("half.py")
    runs = 'title = "Mine"\nplugins = ["half.py"]\n[[runs]]\nbenchmark = "permuted-mnist"\n'
    study = read_study(str(write("mine.toml", f'{runs}methods = ["half"]\n')))
    assert study.runs[0].specs[0].settings["share"] == 0.5
    bad = write("bad.toml", f'{runs.replace("half.py", "none.py")}methods = ["van"]\n')
    with pytest.raises(EngramError, match=r"bad.toml, line 2, plugins: plugin must be a Python"):
        read_study(str(bad))


def test_what_there_is_is_listed_with_where_it_comes_from(engram, write, install):
    install("evil", RULE.replace('"half"', '"gem"'), ("rules", "gem", "evil"))
    told = engram("list", "rules", plugin=write("half.py"))
    lines = [line.split() for line in told.out.splitlines()]
    assert lines[0] == ["rules"]
    assert ["gem", "engram"] in lines
    assert [words[0] for words in lines if words[-1].endswith("half.py")] == ["half"]
    assert "  gem      engram-evil 1.0 (refused: the name is that of engram.rules.gem)" in told.out
    assert "There is no kind of thing to list 'rule'" in engram("list", "rule").err
    found = json.loads(engram("list", "methods", json=True).out)["methods"]
    assert {"name": "van", "origin": "engram", "refused": None} in found


def test_a_broken_file_that_is_always_there_breaks_what_asks_for_it_alone(
    engram, write, monkeypatch
):
    monkeypatch.setenv(plugins.FILES, str(write("mine.py", "raise RuntimeError('no luck')")))
    protocol.specify("permuted-mnist", "mega-ii")
    told = engram("list", "networks")
    assert told.code == 0
    assert "mine.py cannot be used: RuntimeError in line 1: no luck." in told.err
    assert told.out.splitlines()[0] == "networks"
    with pytest.raises(EngramError, match=r"mine.py cannot be used"):
        protocol.specify("permuted-mnist", "half")


def test_a_registry_keeps_what_its_check_returns():
    kept = Registry("rules-of-a-test", "thing", lambda _, value: str(value))
    try:
        assert kept.add("one", 1, module="engram.mine") == "1"
        assert kept.get("one") == "1"
        with pytest.raises(EngramError, match="There is no thing 'two'; valid are one"):
            kept.get("two")
    finally:
        del plugins.REGISTRIES["rules-of-a-test"]


@pytest.mark.slow
def test_a_command_trains_with_a_plugin_in_its_workers(write, tmp_path):
    file = write("half.py")
    words = ["run", "permuted-mnist", "half", "--seeds", "1", "--tasks", "1", "--examples", "20"]
    command = [sys.executable, "-m", "engram", *words, "--plugin", str(file), "--device", "cpu"]
    source = str(Path(plugins.__file__).parents[1])
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert " half " in done.stdout
