// The mathematics of docs/memory-explorer.md: adaxopt/memory.py and adaxopt/rule.py for one coordinate, in plain numbers.
//
// Every memory of the page is a point (c, beta): over T steps the square of step i has the weight i^-c * (1 + beta/T)^-i.
//   beta > 0, c = 0   growing(b2 = beta/T): AdaX              beta < 0, c = 0   fading(b2 = 1 + beta/T): Adam
//   beta = 0, c = 0   equal: AdaGrad                          beta = 0, c > 0   power(c): NosAdam
// tests/test_memory_explorer.py compares these functions with the library in a browser.
const memoryMath = {
  // k_1 ... k_T, the weight of the newest square: k_t = 1/S_t with S_t = sum_i w_i/w_t.
  gains(c, beta, T) {
    const k = [1];
    let sum = 1;
    for (let t = 2; t <= T; t++) {
      sum = 1 + sum * (1 + beta / T) * Math.pow(t / (t - 1), c);
      k.push(1 / sum);
    }
    return k;
  },

  // The weights of the squares 1 ... t in v_t; they sum to 1.
  weights(c, beta, T, t) {
    const rate = Math.log1p(beta / T);
    const logs = Array.from({ length: t }, (_, i) => -c * Math.log(i + 1) - rate * (i + 1));
    const top = logs.reduce((a, b) => Math.max(a, b));
    const raw = logs.map((x) => Math.exp(x - top));
    const sum = raw.reduce((a, b) => a + b, 0);
    return raw.map((x) => x / sum);
  },

  // m, v and the step m/sqrt(v), in units of lr, along gradients g. With `wake`, where v is 0 the square is taken whole.
  simulate(g, k, wake, b1 = 0.9) {
    let m = 0;
    let v = 0;
    const out = { v: [], step: [] };
    g.forEach((x, i) => {
      m = b1 * m + (1 - b1) * x;
      v = wake && v === 0 ? x * x : v + k[i] * (x * x - v);
      out.v.push(v);
      out.step.push(v > 0 ? m / Math.sqrt(v) : 0);
    });
    return out;
  },

  // Standard normal numbers, the same on every machine.
  normals(n, seed = 1) {
    let a = seed >>> 0;
    const uniform = () => {
      a = (a + 0x6d2b79f5) >>> 0;
      let t = Math.imul(a ^ (a >>> 15), a | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    return Array.from({ length: n }, () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()));
  },

  // |g| of the presets at step t of T.
  presets: {
    decay: (t, T) => 10 * Math.pow(10, (-2 * (t - 1)) / (T - 1)),
    growth: (t, T) => 0.1 * Math.pow(10, (2 * (t - 1)) / (T - 1)),
    spike: () => 1,
    "late start": (t, T) => (t <= 0.6 * T ? 0 : 1),
    constant: () => 1,
  },
};
