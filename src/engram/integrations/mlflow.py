"""MLflow's model registry as an option (extra ``mlflow``): champion and challenger.

The artefact stays the source of truth. The registry gets, of every version that it lacks, the
network as torch.export writes it, the facts and the report; ``champion`` is the version that
answers, ``challenger`` the newest other one that came after it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from engram import production
from engram.errors import EngramError
from engram.production import Artefact

CHAMPION, CHALLENGER = "champion", "challenger"
_NUMBER = "engram.version"


def register(
    folder: str | os.PathLike[str],
    name: str,
    *,
    tracking_uri: str | None = None,
    experiment: str = "engram",
    trust_code: bool = False,
) -> dict[int, str]:
    """Register the versions of an artefact that the registry lacks, and move both aliases.

    Returns MLflow's version of each of the artefact's. Called again, it registers nothing twice.
    """
    client = _client(tracking_uri)
    artefact = Artefact(folder)
    current = artefact.current.number
    known = _known(client, name)
    for version in artefact.versions():
        if version.number not in known:
            model = production.load(folder, version.number, trust_code=trust_code)
            known[version.number] = _register(client, name, experiment, version, model)
    client.set_registered_model_alias(name, CHAMPION, known[current])
    later = [each.number for each in artefact.versions() if each.number > current]
    if later:
        client.set_registered_model_alias(name, CHALLENGER, known[later[-1]])
    elif CHALLENGER in client.get_registered_model(name).aliases:
        client.delete_registered_model_alias(name, CHALLENGER)
    return dict(known)


def _client(tracking_uri: str | None) -> Any:  # noqa: ANN401 (it may not be installed)
    try:
        from mlflow import MlflowClient
    except ImportError:
        raise EngramError(
            "MLflow's registry needs mlflow, which is not installed: "
            'pip install "engram-torch[mlflow]".'
        ) from None
    return MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)


def _known(client: Any, name: str) -> dict[int, str]:  # noqa: ANN401
    """Return the registry's versions by the artefact's, and make the model if there is none."""
    from mlflow.exceptions import MlflowException

    try:
        client.get_registered_model(name)
    except MlflowException:
        client.create_registered_model(name)
    found = client.search_model_versions(f"name='{name}'")
    return {int(each.tags[_NUMBER]): str(each.version) for each in found if _NUMBER in each.tags}


def _register(
    client: Any,  # noqa: ANN401
    name: str,
    experiment: str,
    version: production.Version,
    model: production.Model,
) -> str:
    found = client.get_experiment_by_name(experiment)
    place = client.create_experiment(experiment) if found is None else found.experiment_id
    run = client.create_run(place, run_name=f"{name} {version.number}").info
    report = version.report()
    with tempfile.TemporaryDirectory() as folder:
        model.export(Path(folder) / "network.pt2")
        client.log_artifact(run.run_id, str(Path(folder) / "network.pt2"), "version")
    for file in ("version.json", "report.json", "report.html"):
        if (version.folder / file).exists():
            client.log_artifact(run.run_id, str(version.folder / file), "version")
    for part in report["parts"] if report else ():
        if part["what"] in ("past", "new"):
            for moment in ("before", "after"):
                if part[moment] is not None:
                    client.log_metric(run.run_id, f"{part['what']} {moment}", part[moment])
    client.set_terminated(run.run_id)
    tags = {_NUMBER: str(version.number), "engram.verdict": version.verdict}
    source = f"{run.artifact_uri}/version"
    made = client.create_model_version(name, source=source, run_id=run.run_id, tags=tags)
    return str(made.version)
