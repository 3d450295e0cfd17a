"""Trainers on the real libraries: the numbers of a plain loop, and a stop in the middle that changes nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import adaxopt

feature = pytest.mark.feature
HERE = Path(__file__).parent


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 6, generator=generator)
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))


def loader():
    return torch.utils.data.DataLoader(data(), batch_size=8)


def by_hand(epochs, lr=1e-2):
    model = net()
    optimizer = adaxopt.AdaXW(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    for _ in range(epochs):
        for x, y in loader():
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            scheduler.step()
    return list(model.parameters())


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-6, atol=1e-7)


@pytest.mark.needs("transformers", "accelerate")
@feature("Hugging Face Trainer", "optimizer_cls_and_kwargs, decay groups, schedule, resume from a checkpoint")
def test_the_hugging_face_trainer_resumes_to_the_same_parameters(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    words = torch.arange(8) % 4
    rows = [{"input_ids": (words + i) % 16, "labels": (words + i) % 16} for i in range(32)]

    def trainer(
        folder, steps, chosen=(adaxopt.AdaXW, {"lr": 2e-3, "weight_decay": 0.7, "betas": (0.9, 1e-3)})
    ):
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=16,
            n_positions=8,
            n_embd=8,
            n_layer=1,
            n_head=2,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
        )
        arguments = TrainingArguments(
            output_dir=str(folder),
            max_steps=steps,
            per_device_train_batch_size=4,
            learning_rate=1e-3,
            weight_decay=0.1,
            lr_scheduler_type="cosine",
            warmup_steps=2,
            save_strategy="steps",
            save_steps=5,
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=3,
        )
        return Trainer(
            model=GPT2LMHeadModel(config),
            args=arguments,
            train_dataset=rows,
            optimizer_cls_and_kwargs=chosen,
        )

    straight = trainer(tmp_path / "a", 10)
    straight.train()
    optimizer = straight.optimizer
    inner = getattr(optimizer, "optimizer", optimizer)
    assert type(inner) is adaxopt.AdaXW
    decays = [group["weight_decay"] for group in inner.param_groups]
    assert sorted(decays) == [0.0, 0.1]  # not 0.7: see the page
    assert {group["initial_lr"] for group in inner.param_groups} == {2e-3}  # not the arguments' 1e-3
    assert inner.param_groups[0]["betas"] == (0.9, 1e-3)
    resumed = trainer(tmp_path / "b", 10)
    resumed.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-5"))
    same(resumed.model.parameters(), list(straight.model.parameters()))
    losses = [row["loss"] for row in straight.state.log_history if "loss" in row]
    assert losses[-1] < losses[0]

    # AdamW: from the Trainer's own, and back to it
    torchs = trainer(tmp_path / "c", 10, None)
    torchs.train()
    ours = trainer(tmp_path / "d", 10, (adaxopt.AdamW, {"lr": 1e-3}))
    ours.train(resume_from_checkpoint=str(tmp_path / "c" / "checkpoint-5"))
    assert type(ours.optimizer.optimizer) is adaxopt.AdamW
    same(ours.model.parameters(), list(torchs.model.parameters()))
    file = ours.optimizer.optimizer.to_torch_state_dict()
    torch.save(file, tmp_path / "d" / "checkpoint-10" / "optimizer.pt")
    ends = []
    for folder in "cd":
        back = trainer(tmp_path / folder, 15, None)
        back.train(resume_from_checkpoint=str(tmp_path / folder / "checkpoint-10"))
        ends.append(list(back.model.parameters()))
    same(*ends)

    # AdaXW from the Trainer's own AdamW: a converted file, as the page says
    path = tmp_path / "c" / "checkpoint-5" / "optimizer.pt"
    old = torch.load(path)
    moved = trainer(tmp_path / "e", 10)
    new = moved.create_optimizer()
    adaxopt.load_adamw_state_dict(new, old)
    for group, before in zip(new.param_groups, old["param_groups"], strict=True):
        group["lr"] = before["lr"]
    torch.save(new.state_dict(), path)
    moved.train(resume_from_checkpoint=str(path.parent))
    assert type(moved.optimizer.optimizer) is adaxopt.AdaXW
    assert moved.optimizer.optimizer.stats()[0]["step"] == 10
    rates = [
        [row["learning_rate"] for row in one.state.log_history if "learning_rate" in row]
        for one in (moved, torchs)
    ]
    assert rates[0] == rates[1]
    assert len(rates[0]) == 10


@pytest.mark.needs("accelerate")
@feature("Accelerate", "prepare, scheduler, save_state and load_state")
def test_accelerate_does_what_a_plain_loop_does_and_resumes(tmp_path):
    from accelerate import Accelerator

    def run(epochs, load=None, save=None):
        accelerator = Accelerator(cpu=True)
        model = net()
        optimizer = adaxopt.AdaXW(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
        model, optimizer, batches, scheduler = accelerator.prepare(model, optimizer, loader(), scheduler)
        if load:
            accelerator.load_state(load)
        for _ in range(epochs):
            for x, y in batches:
                optimizer.zero_grad()
                accelerator.backward(nn.functional.mse_loss(model(x), y))
                optimizer.step()
                scheduler.step()
        if save:
            accelerator.save_state(save)
        return list(accelerator.unwrap_model(model).parameters())

    same(run(6), by_hand(6))
    run(3, save=str(tmp_path / "state"))
    same(run(3, load=str(tmp_path / "state")), by_hand(6))


@pytest.mark.needs("accelerate")
@feature("Accelerate", "gradient accumulation, clipping")
def test_accelerate_accumulates_and_clips():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = net()
    optimizer = adaxopt.AdaXW(model.parameters(), lr=1e-2)
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader())
    for x, y in batches:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.mse_loss(model(x), y))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    steps = {float(entry["step"]) for entry in optimizer.optimizer.state.values()}
    assert steps == {2.0}


@pytest.mark.needs("lightning")
@feature("Lightning", "configure_optimizers, scheduler, resume from a checkpoint")
def test_lightning_does_what_a_plain_loop_does_and_resumes(tmp_path):
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, _):
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            optimizer = adaxopt.AdaXW(self.parameters(), lr=1e-2)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def run(epochs, checkpoint=None):
        model = Model()
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(model, loader(), ckpt_path=checkpoint, weights_only=checkpoint and False)
        return trainer, list(model.parameters())

    same(run(6)[1], by_hand(6))
    trainer, _ = run(3)
    path = str(tmp_path / "half.ckpt")
    trainer.save_checkpoint(path)
    same(run(6, path)[1], by_hand(6))


TIMM = """
import torchvision_operators; torchvision_operators.declare()
import io, logging, timm, timm.optim, torch
from timm.scheduler import create_scheduler_v2
from adaxopt import AdaXW, AdaX, Padax
from adaxopt.integrations import register_timm
told = io.StringIO()
logging.basicConfig(stream=told)
register_timm()
register_timm()
assert told.getvalue() == "", told.getvalue()
assert {"adax", "adaxw", "padax"} <= set(timm.optim.list_optimizers("*ada*"))
torch.manual_seed(0)
model = timm.create_model("resnet10t", num_classes=4)
for name, cls in (("adax", AdaX), ("adaxw", AdaXW), ("padax", Padax)):
    optimizer = timm.optim.create_optimizer_v2(model, name, lr=1e-3, weight_decay=0.05, betas=(0.8, 1e-3))
    assert type(optimizer) is cls and optimizer.param_groups[0]["betas"] == (0.8, 1e-3)
    assert sorted(g["weight_decay"] for g in optimizer.param_groups) == [0.0, 0.05]
layers = timm.optim.create_optimizer_v2(model, "adaxw", lr=1e-3, weight_decay=0.05, layer_decay=0.5)
assert len({g["lr_scale"] for g in layers.param_groups}) > 2
ahead = timm.optim.create_optimizer_v2(model, "lookahead_adaxw", lr=1e-3)
scheduler, _ = create_scheduler_v2(layers, "cosine", num_epochs=10, warmup_epochs=2, warmup_lr=1e-5)
x, y = torch.randn(4, 3, 64, 64), torch.arange(4)
for optimizer in (layers, ahead):
    before = [p.detach().clone() for p in model.parameters()]
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    assert (before[-2] != list(model.parameters())[-2]).all()  # the classifier; early layers have tiny rates
scheduler.step(5)
assert layers.param_groups[0]["lr"] < layers.param_groups[-1]["lr"] < 1e-3
"""


@pytest.mark.needs("timm")
@feature("timm", "registry, layer decay, Lookahead, timm's schedulers")
def test_timm_finds_the_registered_names(tmp_path):
    """In a process of its own: the torchvision that it needs is in the other frameworks' way."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TIMM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *(p for p in sys.path if p)])},
        capture_output=True,
        text=True,
        timeout=900,  # a stop where something hangs; a loaded machine has time
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.needs("peft", "transformers")
@feature("PEFT", "LoRA: state for adapters alone, saved and loaded")
def test_lora_parameters_train_and_the_rest_has_no_state(tmp_path):
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    def base():
        torch.manual_seed(0)
        return GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=2, n_head=2))

    model = get_peft_model(
        base(), LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0)
    )
    frozen = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
    optimizer = adaxopt.AdaXW(model.parameters(), lr=1e-2)  # all of them: frozen ones have no gradient
    words = (torch.arange(8) % 4).unsqueeze(0)
    model.eval()  # no dropout; adapters train all the same
    losses = []
    for _ in range(10):
        loss = model(input_ids=words, labels=words).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert len(optimizer.state) == 4
    assert all(torch.equal(p, frozen[name]) for name, p in model.named_parameters() if name in frozen)
    model.save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(base(), tmp_path / "adapter")
    torch.testing.assert_close(again(input_ids=words).logits, model(input_ids=words).logits)


S = torch.optim.lr_scheduler
SCHEDULERS = {
    "StepLR": lambda o: S.StepLR(o, 3),
    "MultiStepLR": lambda o: S.MultiStepLR(o, [3, 6]),
    "LinearLR": lambda o: S.LinearLR(o, 0.1, total_iters=5),
    "ExponentialLR": lambda o: S.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda o: S.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: S.CosineAnnealingWarmRestarts(o, 4),
    "PolynomialLR": lambda o: S.PolynomialLR(o, 10),
    "LambdaLR": lambda o: S.LambdaLR(o, lambda t: 1 / (1 + t)),
    "OneCycleLR": lambda o: S.OneCycleLR(o, 0.1, total_steps=20),
    "CyclicLR": lambda o: S.CyclicLR(o, 1e-3, 1e-1, step_size_up=4),
    "SequentialLR": lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1), S.ExponentialLR(o, 0.9)], [4]),
}


@pytest.mark.needs("torch")
@feature("torch.optim.lr_scheduler, swa_utils", "every scheduler, those that cycle betas too")
@pytest.mark.parametrize("tensor_lr", [False, True])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_writes_what_it_writes_into_adamw(name, tensor_lr):
    """And the parameters are those of an optimizer whose lr and b1 were set by hand."""
    found, by_name = [], {}
    for which, cls in (("theirs", torch.optim.AdamW), ("ours", adaxopt.AdaXW)):
        p = nn.Parameter(torch.ones(3, dtype=torch.float64))
        lr = torch.tensor(1e-2, dtype=torch.float64) if tensor_lr else 1e-2
        optimizer = cls([p], lr=lr, **({"betas": (0.9, 1e-4)} if which == "ours" else {}))
        scheduler = SCHEDULERS[name](optimizer)
        rows = []
        for t in range(12):
            group = optimizer.param_groups[0]
            rows.append((float(group["lr"]), float(group["betas"][0])))
            p.grad = torch.full_like(p, 1.0 + t)
            optimizer.step()
            scheduler.step()
        found.append(rows)
        by_name[which] = p
    torch.testing.assert_close(torch.tensor(found[0]), torch.tensor(found[1]))
    assert len(set(found[1])) > 1
    p = nn.Parameter(torch.ones(3, dtype=torch.float64))
    plain = adaxopt.AdaXW([p], lr=1e-2)
    for t, (lr, b1) in enumerate(found[1]):
        plain.param_groups[0].update(lr=lr, betas=(b1, 1e-4))
        p.grad = torch.full_like(p, 1.0 + t)
        plain.step()
    torch.testing.assert_close(by_name["ours"], p, rtol=1e-7, atol=1e-9)


@pytest.mark.needs("torch")
@feature("torch.optim.lr_scheduler, swa_utils", "ReduceLROnPlateau")
def test_a_plateau_reduces_the_rate():
    p = nn.Parameter(torch.ones(3))
    optimizer = adaxopt.AdaXW([p], lr=1e-2)
    scheduler = S.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    for _ in range(4):
        scheduler.step(1.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(5e-3)


@pytest.mark.needs("torch")
@feature("torch.optim.lr_scheduler, swa_utils", "AveragedModel, SWALR, update_bn")
def test_weight_averaging_is_the_mean_of_the_visited_parameters():
    from torch.optim.swa_utils import SWALR, AveragedModel

    model = net()
    optimizer = adaxopt.AdaXW(model.parameters(), lr=1e-2)
    average, schedule = AveragedModel(model), SWALR(optimizer, swa_lr=1e-3, anneal_epochs=2)
    visited = []
    for _ in range(4):
        for x, y in loader():
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        average.update_parameters(model)
        schedule.step()
        visited.append([p.detach().clone() for p in model.parameters()])
    expected = [torch.stack(some).mean(0) for some in zip(*visited, strict=True)]
    same(average.module.parameters(), expected)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-3)
