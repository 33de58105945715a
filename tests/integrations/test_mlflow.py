"""MLflow's registry, the real one, in a database of its own."""

import pytest

pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
pytest.importorskip("sqlalchemy", reason="a registry of one's own needs all of mlflow")

from engram import production
from engram.errors import EngramError
from engram.integrations.mlflow import CHALLENGER, CHAMPION, register
from examples.weeks import week

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own


def test_the_version_that_answers_is_the_champion(tmp_path, monkeypatch):
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    monkeypatch.chdir(tmp_path)  # where a database's artefacts go
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    settings = {"target": "left", "time": "date", "tags": "customer", "passes": 1}
    production.train(week(1, 300), "churn", settings=settings)
    assert register("churn", "churn-model", tracking_uri=uri) == {1: "1"}
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    assert client.get_model_version_by_alias("churn-model", CHAMPION).tags["engram.version"] == "1"
    production.update("churn", week(2, 300), force="for the test")
    production.update("churn", week(3, 300, shuffled=True))
    assert register("churn", "churn-model", tracking_uri=uri) == {1: "1", 2: "2", 3: "3"}
    assert client.get_model_version_by_alias("churn-model", CHAMPION).version in ("2", 2)
    challenger = client.get_model_version_by_alias("churn-model", CHALLENGER)
    assert challenger.tags["engram.verdict"] != "accepted"
    production.rollback("churn")
    register("churn", "churn-model", tracking_uri=uri)
    assert client.get_model_version_by_alias("churn-model", CHAMPION).version in ("1", 1)
    production.rollback("churn", to=2)
    production.update("churn", week(4, 300), force="for the test")
    register("churn", "churn-model", tracking_uri=uri)
    with pytest.raises(MlflowException):
        client.get_model_version_by_alias("churn-model", CHALLENGER)


def test_what_is_no_artefact_is_refused(tmp_path):
    with pytest.raises(EngramError, match="is no artefact"):
        register(tmp_path, "m", tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
