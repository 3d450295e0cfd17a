"""examples/finetune_hf.py on a tiny model that is made here: no download."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "finetune_hf.py"
TEXT = "the quick brown fox jumps over the lazy dog . " * 60


@pytest.mark.needs("transformers", "accelerate", "tokenizers")
def test_a_fine_tune_lowers_the_loss_and_saves_the_model(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(sorted({*TEXT.split(), "?"}))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(tmp_path / "model")
    config = GPT2Config(vocab_size=len(words), n_positions=16, n_embd=16, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text(TEXT)

    spec = importlib.util.spec_from_file_location("finetune_hf", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    given = {"model": tmp_path / "model", "text": tmp_path / "text.txt", "out": tmp_path / "tuned"}
    given |= {"steps": 40, "lr": 1e-2, "batch": 4, "context": 16, "log-every": 4}
    losses = module.main([word for name, value in given.items() for word in (f"--{name}", str(value))])
    assert len(losses) == 10
    assert losses[-1] < losses[0] - 0.3
    AutoModelForCausalLM.from_pretrained(tmp_path / "tuned")
