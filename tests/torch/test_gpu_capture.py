"""CUDA graphs of steps inside the backward pass, and of a decay that is measured against the first lr."""

from __future__ import annotations

import pytest
import torch
from test_gpu import SHAPES, gradients, parameters, same

from adaxopt import AdaXW, step_in_backward

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def beside(work):
    """Run on another stream, as before every capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_capture_inside_backward_needs_capturable():
    """Otherwise the graph would go on reading host memory that later steps write again."""
    model = torch.nn.Linear(4, 3).cuda()
    optimizer = AdaXW(model.parameters())
    step_in_backward(optimizer)
    x = torch.ones(2, 4, device="cuda")
    beside(lambda: [model(x).square().sum().backward() for _ in range(3)])
    with (
        pytest.raises(RuntimeError, match="needs capturable=True in every group"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        model(x).square().sum().backward()


def test_a_graph_with_steps_inside_backward_goes_on_as_eager_steps_do():
    ends = []
    for captured in (False, True):
        torch.manual_seed(0)
        layers = torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)
        model = torch.nn.Sequential(*layers).to("cuda", torch.float64)
        optimizer = AdaXW(model.parameters(), capturable=True)
        step_in_backward(optimizer)
        x = torch.ones(2, 4, device="cuda", dtype=torch.float64)

        def work(model=model, x=x):
            model(x).square().sum().backward()

        for _ in range(3):
            beside(work)
        if captured:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                work()
        for t in range(50):  # now and then an eager step from other addresses, by other slots
            graph.replay() if captured and t % 5 else work()
        ends.append([p.detach().clone() for p in model.parameters()])
        assert all(s["step"] == 53 for s in optimizer.state.values())
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_a_graph_of_fully_decoupled_decay_follows_an_lr_on_the_device():
    """The first lr, which that decay is measured against, is not read from the device under capture."""
    eager, captured = parameters(SHAPES), parameters(SHAPES)
    rates = [torch.tensor(1e-2, device="cuda") for _ in range(2)]
    options = {"weight_decay": 0.1, "decay": "fully_decoupled", "capturable": True}
    optimizers = [AdaXW(p, lr=lr, **options) for p, lr in zip((eager, captured), rates, strict=True)]
    gradients(eager, 0), gradients(captured, 0)
    beside(optimizers[1].step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizers[1].step()
    optimizers[0].step()
    for t in range(5):
        for rate in rates:
            rate.fill_(1e-2 / (1 + t))
        optimizers[0].step(), graph.replay()
    assert same(eager, captured)
