"""The segmentation studies as data: `adax reproduce voc/camvid`, `voc/tuning`. Written before the runs.

The paper fine-tunes DeepLab-ASPP over a COCO-pretrained ResNet-101 on PASCAL VOC2012, neither of which can be had
here. The stand-in is CamVid (11 classes, 367 pictures to train) with a ResNet-50 pretrained on ImageNet: a head from
scratch, and T = 2,000 steps of 10 crops instead of 20,000. All else is the recipe's.

    camvid   the paper's settings. b2*T was 2 (b2 = 1e-4, T = 20,000), so AdaX-W takes b2 = 2/T = 1e-3; one more row
             has b2 = 1e-4 itself, b2*T = 0.2. Three seeds, judged on the test split.
    tuning   the paper's learning rates fit a head that is nearly trained and ten times as many steps. So every method
             may try five, half a decade apart, on the validation split with one seed; three fresh seeds of the best are
             judged on the test split. Weight decay is the paper's. The five lie around SGDM's own lr, 3e-5 for AdamW
             and AMSGrad(W), 1e-4 for AdaX-W: chosen after short looks, before the study, of which no record was kept.

Seeds of a number share the head's first weights and every crop, so methods are compared seed by seed.
"""

from __future__ import annotations

from typing import Any

from adaxlab.data import resnet50
from adaxlab.study import Row, Study, Tuning

STEPS = 500
"""Steps of a quarter; an evaluation follows each of the four."""
PAPER_B2_STEPS = 2.0

SGDM, ADAMW, AMSGRADW, ADAXW, ADAXW_B2 = (
    "torch:SGD",
    "torch:AdamW",
    "torch:AdamW@amsgrad",
    "adaxw",
    "adaxw@b2=1e-4",
)
PAPER = {SGDM: (76.28, 0.15), ADAMW: (74.62, 0.12), AMSGRADW: (73.62, 0.09), ADAXW: (76.53, 0.14)}
"""Mean IoU and margin on VOC2012."""
OPTIONS: dict[str, dict[str, Any]] = {
    SGDM: {"lr": 2.5e-4, "momentum": 0.9, "weight_decay": 5e-4},
    ADAMW: {"lr": 1e-6, "weight_decay": 0.1},
    AMSGRADW: {"lr": 1e-6, "weight_decay": 0.1, "amsgrad": True},
    ADAXW: {"lr": 1e-5, "weight_decay": 5e-2, "wake": False},
    ADAXW_B2: {"lr": 1e-5, "weight_decay": 5e-2, "wake": False, "betas": [0.9, 1e-4]},
}

RATES = {
    SGDM: (2.5e-5, 7.9e-5, 2.5e-4, 7.9e-4, 2.5e-3),
    ADAMW: (3e-6, 1e-5, 3e-5, 1e-4, 3e-4),
    AMSGRADW: (3e-6, 1e-5, 3e-5, 1e-4, 3e-4),
    ADAXW: (1e-5, 3e-5, 1e-4, 3e-4, 1e-3),
}
"""What each method may try in the study of equal budgets."""


def _row(name: str, tuned: bool) -> Row:
    rates = RATES[name] if tuned else ()
    b2_steps = PAPER_B2_STEPS if name == ADAXW else None
    return Row(name, options=OPTIONS[name], rates=rates, b2_steps=b2_steps, paper=PAPER.get(name))


def _study(name: str, rows: tuple[Row, ...], **rest: Any) -> Study:
    return Study(
        name=f"voc/{name}",
        task="voc",
        rows=rows,
        baseline=SGDM,
        epochs=4,
        batch_size=10,
        seeds=3,
        task_options={
            "layout": "camvid",
            "backbone": "resnet50",
            "steps": STEPS,
            "weights": resnet50.FOLDER,
        },
        schedule={"name": "poly", "power": 0.9},
        where="table 3 *",
        stand_in="PASCAL VOC2012",
        **rest,
    )


TITLE = "CamVid (adax data get camvid, resnet50-weights), a GPU"
STUDIES = (
    _study(
        "camvid",
        tuple(_row(name, False) for name in OPTIONS),
        asks="segmentation at the paper's settings",
        title="CamVid at the paper's settings, a stand-in for PASCAL VOC2012",
        note="T = 2,000; b2*T = 2 for AdaX-W, as in the paper, and 0.2 in the row with b2 = 1e-4. At the "
        "paper's 1e-6 AdamW and AMSGrad(W) have not trained as far as the others (training loss); `voc/tuning` gives "
        "each method its own lr.",
    ),
    _study(
        "tuning",
        tuple(_row(name, True) for name in RATES),
        tuning=Tuning(5),
        asks="five learning rates for each method",
        title="CamVid with five learning rates each, a stand-in for PASCAL VOC2012",
        note="T = 2,000; b2*T = 2 for AdaX-W.",
    ),
)
