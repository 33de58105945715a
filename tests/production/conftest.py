"""An artefact that was trained once, to be copied by the tests that change it."""

import shutil

import pytest
from weeks import week

from engram import production

SETTINGS = {"target": "left", "time": "date", "tags": "customer", "passes": 3}
SMALL = {"width": 32}


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "churn"
    production.train(week(1, 1500), folder, settings=SETTINGS, arguments=SMALL)
    return folder


@pytest.fixture
def churn(trained, tmp_path):
    """Return an artefact of its own with a first version."""
    return shutil.copytree(trained, tmp_path / "churn")
