"""AdaX in plain Python: the whole algorithm in one class, without any framework.

python examples/adax.py

The update of Li et al. 2020, Algorithm 3, written for a v that cannot overflow:

    m <- b1*m + (1-b1)*g
    v <- v + k_t*(g*g - v)                       k_t = b2/((1+b2)^t - 1)
    x <- x - lr*m/(sqrt(v) + eps_t)              eps_t = eps/sqrt((1+b2)^t - 1)

`adaxopt.AdaX` and `adaxopt.AdaXW` compute the same numbers on tensors.
"""

import math


class AdaX:
    """Updates the list `x` in place. `decoupled=True` is AdaX-W: weight decay apart from the gradient."""

    def __init__(self, x, lr=1.5e-3, b1=0.9, b2=1e-4, eps=1e-12, weight_decay=0.0, decoupled=False):
        self.x, self.lr, self.b1, self.b2, self.eps = x, lr, b1, b2, eps
        self.weight_decay, self.decoupled = weight_decay, decoupled
        self.m, self.v, self.t = [0.0] * len(x), [0.0] * len(x), 0

    def step(self, gradient):
        """One step. `gradient` has one number per element of x."""
        self.t += 1
        growth = self.t * math.log1p(self.b2)  # log((1+b2)^t); the power itself would overflow
        shrunk = math.exp(-growth)
        k = min(1.0, self.b2 * shrunk / (1 - shrunk))  # 1 at the first step, then falling towards 0
        eps = self.eps * math.sqrt(shrunk / (1 - shrunk))
        for i, g in enumerate(gradient):
            decay = self.weight_decay * self.x[i]
            if not self.decoupled:
                g += decay  # L2: the decay is part of the gradient
            self.m[i] = self.b1 * self.m[i] + (1 - self.b1) * g
            if self.v[i] == 0:  # the first gradient of this coordinate, however late it comes
                self.v[i] = g * g
            else:
                self.v[i] += k * (g * g - self.v[i])
            self.x[i] -= self.lr * self.m[i] / (math.sqrt(self.v[i]) + eps)
            if self.decoupled:
                self.x[i] -= self.lr * decay


def rosenbrock(x, y):
    """The value and the gradient of (1-x)^2 + 100 (y-x^2)^2, which is 0 at (1, 1)."""
    valley = y - x * x
    return (1 - x) ** 2 + 100 * valley**2, [-2 * (1 - x) - 400 * x * valley, 200 * valley]


if __name__ == "__main__":
    point, steps = [-1.2, 1.0], 10_000
    optimizer = AdaX(point, lr=1e-2, b2=3 / steps)
    for step in range(steps + 1):
        value, gradient = rosenbrock(*point)
        if step % 2_000 == 0:
            print(f"step {step:6}   f({point[0]:+.4f}, {point[1]:+.4f}) = {value:.2e}")
        optimizer.step(gradient)
