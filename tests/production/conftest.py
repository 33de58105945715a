"""An artefact that was trained once, to be copied by the tests that change it."""

import shutil

import pytest
from trained_settings import SETTINGS, SMALL

from engram import production
from examples.weeks import week


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "churn"
    production.train(week(1, 1500), folder, settings=SETTINGS, arguments=SMALL)
    return folder


@pytest.fixture
def churn(trained, tmp_path):
    """Return an artefact of its own with a first version."""
    return shutil.copytree(trained, tmp_path / "churn")
