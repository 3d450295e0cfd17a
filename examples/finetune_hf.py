"""Fine-tune a causal language model of the Hugging Face hub on a text file, with AdaX-W and the Trainer.

pip install transformers accelerate
python examples/finetune_hf.py --model gpt2 --text my.txt --out tuned

--model is a name on the hub or a folder. The Trainer makes its own parameter groups (no decay for biases and norms)
and its own schedule; it takes lr from the keyword arguments of the class and weight_decay from its own arguments.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from adaxopt import AdaXW


def windows(tokenizer, path, context):
    """The file's tokens in windows of `context`; the model shifts the labels itself."""
    tokens = torch.tensor(tokenizer(Path(path).read_text(encoding="utf-8"))["input_ids"])
    rows = tokens[: len(tokens) // context * context].view(-1, context)
    if not len(rows):
        raise SystemExit(
            f"{path}: {len(tokens)} tokens, fewer than one window of {context}; give a smaller --context"
        )
    return [{"input_ids": row, "labels": row} for row in rows]


def main(given=None):
    """Returns the training losses that were logged."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--text", required=True)
    parser.add_argument("--out", default="tuned")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--lr", type=float, default=5e-5, help="start from the lr that you use with AdamW")
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--log-every", type=int, default=10)
    o = parser.parse_args(given)

    tokenizer = AutoTokenizer.from_pretrained(o.model)
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(o.model),
        args=TrainingArguments(
            output_dir=o.out,
            max_steps=o.steps,
            per_device_train_batch_size=o.batch,
            weight_decay=o.weight_decay,
            lr_scheduler_type="cosine",
            warmup_steps=o.steps // 20,
            max_grad_norm=1.0,
            logging_steps=o.log_every,
            save_strategy="no",
            report_to=[],
            bf16=torch.cuda.is_available(),
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=windows(tokenizer, o.text, o.context),
        optimizer_cls_and_kwargs=(AdaXW, {"lr": o.lr, "total_steps": o.steps}),
    )
    trainer.train()
    trainer.save_model(o.out)
    tokenizer.save_pretrained(o.out)
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


if __name__ == "__main__":
    main()
