"""How the models of these tests are trained."""

SETTINGS = {"target": "left", "time": "date", "tags": "customer", "passes": 3}
SMALL = {"width": 32}
