"""Claims about memories: sections 2 and 4, facts that the library relies on, and the numbers of the errata."""

from __future__ import annotations

import math
from typing import Any

from adaxlab.claim import OURS
from adaxlab.paper.theory.record import fact, g, number, section_2, section_4
from adaxopt.memory import growing_log_norm
from adaxopt.zoo import METHODS

EXACT = 1e-9


def claims(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [*_background(body), *_moments(body), *_facts(body), *_errata(body)]


def _background(body: dict[str, Any]) -> list[dict[str, Any]]:
    table = dict(body["table_1"])
    factor = table.pop("nosadam_log10_factor")
    rows = {row["optimizer"]: row for row in body["memories"]["rows"]}
    steps = body["memories"]["steps"]
    ratio = rows["nosadam"]["oldest_over_newest"]
    return [
        section_2(
            "S2.1",
            "One framework (Algorithm 1) covers SGDM, AdaGrad, RMSProp, Adam, AMSGrad, AdaShift and AdaX: only the "
            "second moment differs.",
            paper="Table 1",
            ours="largest relative difference between the table's sums, written out, and the one rule: "
            f"{max(table.values()):.1e}",
            n=len(table),
            rule="supported if all agree to 1e-9 on 300 random gradients",
            holds=max(table.values()) < EXACT,
            note="AdaGrad's and AdaShift's bias corrections, which the table leaves to the text, included.",
        ),
        section_2(
            "S2.2",
            "NosAdam's second moment is the one in Table 1.",
            paper="sum of b2_i prod (1 + b2_(t-j+1)) g_i^2",
            ours=f"with NosAdam's own b2_t the formula is 10^{factor:.0f} times NosAdam's v after 300 steps",
            rule="supported if they agree to 1e-9",
            holds=factor < EXACT,
            note="The formula is AdaX's with a changing b2. NosAdam's own: v_t = b2_t v_(t-1) + (1-b2_t) g_t^2 with "
            "b2_t = B_(t-1)/B_t.",
        ),
        section_2(
            "S2.3",
            "Earlier variants, NosAdam among them, give recent gradients the higher weights.",
            paper="'past information was not emphasized'",
            ours=f"weight of the oldest square over that of the newest at step {steps:,}: Adam "
            f"{g(rows['adam']['oldest_over_newest'])}, NosAdam {ratio:.2f}, AdaGrad "
            f"{rows['adagrad']['oldest_over_newest']:.2f}",
            rule="supported if the newest outweighs the oldest in NosAdam as it does in Adam",
            holds=ratio < 1,
            note="True of Adam and AdaShift. NosAdam's weights i^-0.1 prefer the past, mildly.",
        ),
    ]


def _moments(body: dict[str, Any]) -> list[dict[str, Any]]:
    rows = body["unbiased"]["rows"]
    adax = next(row for row in body["memories"]["rows"] if row["optimizer"] == "adax")
    adam = next(row for row in body["memories"]["rows"] if row["optimizer"] == "adam")
    still = body["stability"]
    steps = body["memories"]["steps"]
    falls = all(b < a for a, b in zip(adax["gain"], adax["gain"][1:], strict=False))
    a, b = METHODS["sgdm"].numbers(7), METHODS["adam"].numbers(7)
    same = abs(b.b / a.b - (1 - 0.9)) < 1e-15 and a.a == b.a
    return [
        section_4(
            "S4.1",
            "Divided by (1+b2)^t - 1, v-hat is unbiased under stationary gradients.",
            paper="E v-hat_t = E g^2",
            ours="E v-hat/E g^2 at step "
            + ", ".join(f"{r['t']}: {r['mean']:.4f} [{r['low']:.4f}, {r['high']:.4f}]" for r in rows),
            n=body["unbiased"]["n"],
            rule="supported if the mean is within three half-widths of 1 at each of the four steps, and the weights "
            "add up to 1 to 1e-9",
            holds=all(abs(r["mean"] - 1) < 1.5 * (r["high"] - r["low"]) for r in rows)
            and body["facts"]["weights_sum"] < EXACT,
        ),
        section_4(
            "S4.2",
            "SGDM's and Adam's first moments differ by the factor 1-b1 only.",
            paper="which is why AdaX does not correct its mean",
            ours=f"m <- {a.a} m + {a.b} g against m <- {b.a} m + {b.b:.1f} g",
            rule="supported if the coefficients of the rule say so",
            holds=same,
        ),
        section_4(
            "S4.3",
            "AdaX weights the past exponentially more: the opposite of Adam.",
            paper="weights b2 (1+b2)^(t-i)",
            ours=f"at step {steps:,} the first tenth of the run holds {100 * adax['oldest_tenth']:.0f}% of AdaX's "
            f"memory, the last tenth {100 * adax['newest_tenth']:.2f}%; "
            f"for Adam {g(100 * adam['oldest_tenth'], 1)}% and {100 * adam['newest_tenth']:.1f}%",
            rule="supported if the oldest square outweighs the newest in AdaX and not in Adam",
            holds=adax["oldest_over_newest"] > 1 > adam["oldest_over_newest"],
        ),
        section_4(
            "S4.4",
            "The weight of the newest gradient falls at every step, so late small gradients change v little.",
            paper="adaptivity decreases gradually",
            ours=f"k_t falls from 1 to {g(adax['gain'][-1])} at step {steps:,} (Adam: {g(adam['gain'][-1])})",
            n=len(adax["gain"]),
            rule="supported if k_t falls at every recorded step and ends below Adam's",
            holds=falls and adax["gain"][-1] < adam["gain"][-1],
        ),
        section_4(
            "S4.5",
            "v-hat becomes stable.",
            paper="'stable and large'",
            ours=f"relative standard deviation over the last 10,000 of {still['steps']:,} steps of standard normal "
            f"gradients: AdaX {still['adax']['relative_sd']:.1e}, Adam {still['adam']['relative_sd']:.1e}",
            n=10_000,
            rule="supported if AdaX's is below a tenth of Adam's",
            holds=still["adax"]["relative_sd"] < 0.1 * still["adam"]["relative_sd"],
        ),
        section_4(
            "S4.6",
            "v-hat becomes large.",
            paper="'stable and large'",
            ours=f"after 20,000 steps with gradients of size 0.01 and {still['steps'] - 20_000:,} of size 1, v-hat "
            f"is {still['adax']['v_over_square_after_small_start']:.3f} E g^2 (Adam "
            f"{still['adam']['v_over_square_after_small_start']:.2f})",
            rule="supported if v-hat is at least half of E g^2 there",
            holds=still["adax"]["v_over_square_after_small_start"] >= 0.5,
            note="v-hat is as large as the early squares. If gradients grow later, the denominator is too small "
            "and steps are large: the reason for `wake` and `clip_update`.",
        ),
    ]


def _facts(body: dict[str, Any]) -> list[dict[str, Any]]:
    facts, real = body["facts"], body["precision"]
    steps, formula = real["overflow_fp32"], real["overflow_formula"]
    last = list(steps)[-1]
    wakes = real["late_activated"]
    return [
        fact(
            "D1",
            "k_t = k_(t-1)/(k_(t-1) + r_t) with k_1 = 1: Adam r = b2, AdaGrad 1, AdaX 1+b2, NosAdam (t/(t-1))^c.",
            ours=f"largest relative difference {facts['ratio_recursion']:.1e}",
            n=4 * 2000,
            rule="supported if equal to 1e-9",
            holds=facts["ratio_recursion"] < EXACT,
        ),
        fact(
            "D2",
            "AdaX is NosAdam with the weights (1+b2)^-i.",
            ours=f"largest relative difference of the gains {facts['adax_is_nosadam']:.1e}",
            n=2000,
            rule="supported if equal to 1e-9",
            holds=facts["adax_is_nosadam"] < EXACT,
        ),
        fact(
            "D3",
            "The raw recursion overflows in float32.",
            ours=f"v is inf at step {steps[last]:,} with b2 = {last} and unit gradients (formula: "
            f"{formula[last]:,.0f})",
            rule="supported if within 1% of log(largest float32)/log(1+b2)",
            holds=abs(steps[last] / formula[last] - 1) < 0.01,
            note="Updates are then zero, silently.",
        ),
        fact(
            "D4",
            "In bfloat16 the raw recursion goes wrong long before.",
            ours=f"its denominator is {real['bf16_raw']:.3f} of the true one, updates {1 / real['bf16_raw']:.1f} "
            f"times too large, after {real['bf16_steps']:,} steps; the normalised form in float32: "
            f"{real['bf16_normalised']:.3f}",
            rule="supported if it is off by more than 2 and the normalised form by less than 1%",
            holds=real["bf16_raw"] < 0.5 and abs(real["bf16_normalised"] - 1) < 0.01,
            note="1 + 1e-4 is 1 in bfloat16, so the weights of the past do not grow.",
        ),
        fact(
            "D5",
            "In float16 it fails at step 1.",
            ours=f"with g = 0.01 the denominator is {real['fp16_step_1']:g}, the update infinite",
            rule="supported if the denominator is 0",
            holds=real["fp16_step_1"] == 0,
        ),
        fact(
            "D6",
            "Without the guard, a coordinate whose first gradient comes at step t takes a step of (1-b1)/sqrt(k_t) "
            "times lr.",
            ours=", ".join(f"{g(v)} at step {int(t):,}" for t, v in wakes.items()),
            n=len(wakes),
            rule="supported if above 100 at 50,000 steps",
            holds=wakes["50000"] > 100,
            note="`wake=True` and per-row steps keep it at 1-b1 or less.",
        ),
    ]


def _errata(body: dict[str, Any]) -> list[dict[str, Any]]:
    formula = body["precision"]["overflow_formula"]
    cost = body["precision"]["operations"]
    grown = math.exp(100_000 * math.log1p(5e-3 * 5e-2))
    row = METHODS["adaxw"]
    first = row.numbers(1).eps / row.defaults["eps"]
    return [
        number(
            "E1",
            "Algorithm 3's decay, with its plus sign, shrinks the parameters.",
            paper="x <- ... + alpha lambda x",
            ours=f"with zero gradients x grows by the factor {g(grown)} in 100,000 steps (lr 5e-3, lambda 5e-2)",
            rule="supported if |x| shrinks",
            holds=grown < 1,
        ),
        number(
            "E2",
            "Adding eps before the correction gives it a large effect early and none late.",
            by=OURS,
            paper="Algorithm 3",
            ours=f"eps_t/eps is {first:.0f} at step 1 and {g(math.exp(-0.5 * growing_log_norm(100_000, 1e-4)))} at "
            "step 100,000",
            rule="supported if it is above 1 at the first step and below 1 at 100,000",
            holds=first > 1 > math.exp(-0.5 * growing_log_norm(100_000, 1e-4)),
        ),
        number(
            "E3",
            "A smaller b2 reduces the computational cost.",
            paper="appendix, twice",
            ours="operations of five steps on one parameter: "
            + ", ".join(f"{v} (b2 = {k})" for k, v in cost.items()),
            n=len(cost),
            rule="supported if the count falls with b2",
            holds=cost["1e-05"] < cost["0.001"],
            note="What b2 moves is the step at which the raw recursion overflows in float32: "
            + ", ".join(f"{v:,.0f} (b2 = {k})" for k, v in formula.items())
            + ".",
        ),
        number(
            "E13",
            "The effect of b2 = 1e-4 depends on the length of the run: b2*T determines it.",
            by=OURS,
            paper="b2 = 1e-4 for every task",
            ours="b2*T is 2 (VOC, 20k steps), 7 (CIFAR-10, 71k), 50 (ImageNet, 500k): the last tenth of the run holds "
            + ", ".join(f"{g(100 * _last_tenth(T), 2)}%" for T in (20_000, 71_000, 500_000))
            + " of the memory",
            n=3,
            rule="supported if these shares differ by more than a factor 2",
            holds=_last_tenth(20_000) > 2 * _last_tenth(500_000),
        ),
    ]


def _last_tenth(T: int, b2: float = 1e-4) -> float:
    """Return the fraction of AdaX's memory in the last tenth of T steps: c_(T/10)/c_T with c_t = (1+b2)^t - 1."""
    return math.exp(growing_log_norm(T // 10, b2) - growing_log_norm(T, b2))
