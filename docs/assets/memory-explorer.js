// The explorable page about memory. State in, drawing out: every control changes `state` and calls `redraw`.
(() => {
  const root = document.getElementById("memory-explorer");
  const { make, draw, number } = memoryCharts;
  const { gains, weights, simulate, normals, presets } = memoryMath;
  const { recorded, methods } = ADAX_MEMORY;
  const T = recorded.steps;
  const FURTHEST = 300; // of |b2*T| that the plane shows; beyond it the drawing keeps to the edge
  const noise = normals(T);

  const state = {
    signal: "decay",
    sizes: [],
    spike: { t: 120, size: 50 },
    noise: false,
    wake: true,
    t: T,
    length: 71000,
    A: null,
    B: null,
    active: "A",
  };

  const series = () => recorded.series.find((one) => one.id === state.signal);
  const kept = (beta) => Math.min(FURTHEST, Math.max(-FURTHEST, beta));
  const place = ({ kind, value }) => {
    const beta = { over: value, growing: value * state.length, fading: -(1 - value) * state.length }[kind] || 0;
    return { c: kind === "power" ? value : 0, beta: kept(beta), exact: beta };
  };
  const gradients = () => {
    if (series()) return series().gradients;
    const sizes = state.sizes.slice();
    if (state.signal === "spike") sizes[state.spike.t - 1] = state.spike.size;
    return state.noise ? sizes.map((a, i) => a * noise[i]) : sizes;
  };
  const choose = (signal) => {
    state.signal = signal;
    if (presets[signal]) state.sizes = Array.from({ length: T }, (_, i) => presets[signal](i + 1, T));
    redraw();
  };
  const run = ({ c, beta }) => simulate(gradients(), gains(c, beta, T), state.wake);
  const half = ({ c, beta }, t) => {
    const w = weights(c, beta, T, t);
    let sum = 0;
    const first = w.findIndex((x) => (sum += x) >= 0.5 - 1e-12) + 1;
    return first <= t / 2 ? `first ${first}` : `last ${t - first + 1}`;
  };

  // -- the page -------------------------------------------------------------------------------------------------------
  const html = (text) => {
    const holder = document.createElement("template");
    holder.innerHTML = text;
    return holder.content;
  };
  const signals = [...Object.keys(presets).map((name) => [name, name]), ...recorded.series.map((s) => [s.id, `recorded: ${s.name}`])];
  const option = ({ label }, i) => `<option value="${i}">${label}</option>`;
  const panel = (name) => `
    <fieldset class="method ${name}"><legend><svg width="34" height="10" aria-hidden="true"><line class="line ${name}" x1="0" x2="34" y1="5" y2="5"/></svg> Method ${name}</legend>
      <label>Method <select data-method="${name}">${methods.map(option).join("")}<option value="-1">other</option></select></label>
      <label>b2·T <output data-show="${name}.beta"></output><input type="range" data-beta="${name}" min="-100" max="100" step="1"></label>
      <label>c <output data-show="${name}.c"></output><input type="range" data-c="${name}" min="-1" max="1" step="0.05"></label>
    </fieldset>`;
  root.replaceChildren(
    html(`
    <fieldset><legend>Gradients</legend><div class="buttons">
      ${signals.map(([id, name]) => `<button type="button" data-signal="${id}">${name}</button>`).join("")}</div>
      <p data-show="signal"></p></fieldset>
    <figure><figcaption>|g|, the size of the gradient. <span data-show="how"></span></figcaption><svg data-chart="gradient" role="group"></svg></figure>
    <div class="row">
      <label>Step t <output data-show="t"></output><input type="range" data-t min="1" max="${T}" step="1"></label>
      <label>|g| at step t <output data-show="size"></output><input type="range" data-size min="-2.05" max="2" step="0.05"></label>
    </div>
    <div class="row checks">
      <label><input type="checkbox" data-noise> noise: multiply g by a standard normal number</label>
      <label><input type="checkbox" data-wake> guard for late-activated coordinates (<code>wake</code>)</label>
    </div>
    <div class="row">${panel("A")}${panel("B")}</div>
    <p role="status" data-show="status"></p>
    <div class="row two">
      <figure><figcaption>Weight of each past square in v at step t, times t. A plain mean is 1 everywhere.</figcaption><svg data-chart="weights" role="img"></svg></figure>
      <figure><figcaption>The plane of memories. Drag A and B; select a published method to move method <span data-show="active"></span> to it.</figcaption><svg data-chart="plane" role="group"></svg>
        <label>Length of the run that places the published methods <select data-length>
        ${[1000, 10000, 71000, 1000000].map((n) => `<option value="${n}">${n.toLocaleString("en")} steps</option>`).join("")}</select></label></figure>
      <figure><figcaption>sqrt(v), beside |g|</figcaption><svg data-chart="v" role="img"></svg></figure>
      <figure><figcaption>Size of the step, |m|/sqrt(v), in units of lr</figcaption><svg data-chart="step" role="img"></svg></figure>
    </div>
    <figure><figcaption>Every published method on this gradient: sqrt(v)</figcaption><svg data-chart="all" role="img"></svg></figure>
    <div class="scroll"><table><thead><tr><th>method</th><th>b2·T</th><th>c</th><th>last gain</th><th>last sqrt(v)</th><th>largest step / lr</th></tr></thead><tbody data-table></tbody></table></div>`),
  );
  const find = (selector) => root.querySelector(selector);
  const show = (name, text) => root.querySelectorAll(`[data-show="${name}"]`).forEach((node) => (node.textContent = text));
  const chart = (name) => find(`[data-chart="${name}"]`);
  // A slider moves asinh(b2*T): fine around 0, coarse far away.
  const SLIDE = Math.asinh(FURTHEST) / 100;

  // -- drawing --------------------------------------------------------------------------------------------------------
  const steps = { domain: [1, T], ticks: [1, 100, 200, 300, 400].filter((t) => t <= T), title: "step" };
  const sizeDomain = () => {
    if (!series()) return [0.01, 100];
    const top = Math.max(...series().gradients.map(Math.abs));
    return [top / 300, top * 1.5];
  };
  const room = (name) => Math.max(260, Math.min(760, chart(name).parentElement.clientWidth));

  function drawGradient(sizes) {
    const svg = chart("gradient");
    const { sx, sy } = draw(svg, {
      x: steps, y: { kind: "log", domain: sizeDomain() }, cursor: state.t, width: room("gradient"), height: 210,
      lines: [{ values: sizes, look: "area", floor: true }], label: "Size of the gradient at each step",
    });
    svg.classList.toggle("paint", !series());
    if (state.signal !== "spike") return;
    const handle = make("circle", {
      class: "handle", r: 9, cx: sx(state.spike.t), cy: sy(state.spike.size), tabindex: 0, role: "slider",
      "aria-label": "spike: arrow keys move it", "aria-valuenow": state.spike.size, "aria-valuemin": 0.01, "aria-valuemax": 100,
      "aria-valuetext": `step ${state.spike.t}, size ${number(state.spike.size)}`,
    });
    handle.addEventListener("keydown", (event) => {
      const [dt, up] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] || [];
      if (dt === undefined) return;
      event.preventDefault();
      moveSpike(state.spike.t + dt * (event.shiftKey ? 10 : 1), state.spike.size * Math.pow(10, up / 10));
      chart("gradient").querySelector(".handle").focus();
    });
    svg.append(handle);
  }

  function moveSpike(t, size) {
    state.spike = { t: Math.min(T, Math.max(1, Math.round(t))), size: Math.min(100, Math.max(0.01, size)) };
    redraw();
  }

  function drawPlane() {
    const svg = chart("plane");
    const { sx, sy } = draw(svg, {
      x: { domain: [-1, 1], ticks: [-1, -0.5, 0, 0.5, 1], title: "c: weights i^(−c)" },
      y: { kind: "asinh", domain: [-FURTHEST, FURTHEST], ticks: [-300, -30, -3, 0, 3, 30, 300] },
      width: room("plane"), height: 300, label: "The plane of memories: c across, b2*T upwards",
    });
    svg.append(
      make("text", { class: "hint", x: sx(-0.97), y: sy(200) + 4 }, "early steps weigh more ↑"),
      make("text", { class: "hint", x: sx(-0.97), y: sy(-150) + 4 }, "recent steps weigh more ↓"),
    );
    methods.forEach((method, i) => {
      const at = place(method);
      const beside = methods.some((other) => place(other).c > at.c && Math.abs(sy(place(other).beta) - sy(at.beta)) < 14);
      const text = beside ? { x: sx(at.c) - 9, "text-anchor": "end" } : { x: sx(at.c) + 13 };
      const dot = make("g", { class: "published", "data-published": i },
        make("rect", { x: sx(at.c) - 5, y: sy(at.beta) - 5, width: 10, height: 10 }),
        make("text", { ...text, y: sy(at.beta) + (at.beta <= -FURTHEST ? -5 : 4) }, method.short));
      dot.addEventListener("click", () => setMethod(state.active, i));
      svg.append(dot);
    });
    for (const name of ["B", "A"]) {
      const { c, beta } = state[name];
      const dot = make("g", {
        class: `dot ${name}`, "data-dot": name, tabindex: 0, role: "slider", "aria-valuenow": beta, "aria-valuemin": -FURTHEST,
        "aria-valuemax": FURTHEST, "aria-valuetext": `c ${number(c)}, b2 times T ${number(beta)}`,
        "aria-label": `method ${name}: left and right change c, up and down b2 times T`,
      }, make("circle", { r: 10, cx: sx(c), cy: sy(beta) }), make("text", { x: sx(c), y: sy(beta) + 4, "text-anchor": "middle" }, name));
      dot.addEventListener("keydown", (event) => {
        const [dc, up] = { ArrowLeft: [-0.05, 0], ArrowRight: [0.05, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] || [];
        if (dc === undefined) return;
        event.preventDefault();
        move(name, c + dc, Math.sinh(Math.asinh(beta) + 2 * up * SLIDE));
        chart("plane").querySelector(`[data-dot="${name}"]`).focus();
      });
      svg.append(dot);
    }
    svg.scales = { sx, sy };
  }

  function drawAll(sizes) {
    const svg = chart("all");
    const names = methods.map((method) => ({ method, at: place(method) }));
    const runs = names.map(({ at }) => ({ at, k: gains(at.c, at.beta, T), ...run(at) }));
    const width = room("all");
    const { sx, sy } = draw(svg, {
      x: { ...steps, room: 100 }, y: { kind: "log", domain: sizeDomain() }, width, height: 240, cursor: state.t,
      lines: [{ values: sizes, look: "ghost" }, ...runs.map((one, i) => ({ values: one.v.map(Math.sqrt), look: `line m${i % 7}` }))],
      label: "Second moment of every published method",
    });
    let last = -Infinity;
    runs.map((one, i) => ({ i, y: sy(Math.sqrt(one.v[T - 1])) })).sort((a, b) => a.y - b.y).forEach(({ i, y }) => {
      last = Math.max(y, last + 13);
      svg.append(make("text", { class: `name m${i % 7}`, x: sx(T) + 6, y: last + 4 }, methods[i].short));
    });
    find("[data-table]").replaceChildren(...runs.map((one, i) => {
      const row = document.createElement("tr");
      const largest = Math.max(...one.step.map(Math.abs));
      const cells = [methods[i].label, one.at.exact, one.at.c, one.k[T - 1], Math.sqrt(one.v[T - 1]), largest];
      row.append(...cells.map((value) => {
        const cell = document.createElement("td");
        cell.textContent = typeof value === "number" ? number(+value.toPrecision(4)) : value;
        return cell;
      }));
      return row;
    }));
  }

  function redraw() {
    const sizes = gradients().map(Math.abs);
    const both = { A: run(state.A), B: run(state.B) };
    const lines = (of) => ["A", "B"].map((name) => ({ values: of(name), look: `line ${name}` }));
    drawGradient(sizes);
    const weight = (name) => weights(state[name].c, state[name].beta, T, state.t).map((w) => w * state.t);
    draw(chart("weights"), { x: steps, y: { kind: "log", domain: [0.01, 100] }, lines: lines(weight), cursor: state.t,
      width: room("weights"), height: 300, label: "Weight of each past square" });
    draw(chart("v"), { x: steps, y: { kind: "log", domain: sizeDomain() }, cursor: state.t, width: room("v"), height: 220,
      lines: [{ values: sizes, look: "ghost" }, ...lines((name) => both[name].v.map(Math.sqrt))], label: "Root of the second moment" });
    draw(chart("step"), { x: steps, y: { kind: "log", domain: [0.01, 100] }, cursor: state.t, width: room("step"), height: 220,
      lines: lines((name) => both[name].step.map(Math.abs)), label: "Size of the step in units of lr" });
    drawPlane();
    drawAll(sizes);

    const i = state.t - 1;
    const told = ["A", "B"].map((name) => {
      const k = gains(state[name].c, state[name].beta, T)[i];
      const [v, s] = [both[name].v[i], Math.abs(both[name].step[i])];
      const short = (x) => number(+x.toPrecision(4));
      return `${name}: gain ${short(k)}, sqrt(v) ${short(Math.sqrt(v))}, step ${short(s)} lr; half of the weight lies on the ${half(state[name], state.t)} steps.`;
    });
    show("status", `Step ${state.t}. ${told.join(" ")}`);
    show("t", state.t);
    show("size", number(+sizes[i].toPrecision(4)));
    show("active", state.active);
    show("signal", series() ? `Recorded: ${series().what}; AdamW, lr ${recorded.lr}, ${T} steps.` : "");
    show("how", series() ? "" : state.signal === "spike" ? "Drag the spike, or draw." : "Draw on the chart to change it.");
    find("[data-t]").value = state.t;
    find("[data-size]").value = sizes[i] > 0 ? Math.log10(sizes[i]) : -2.05;
    find("[data-size]").disabled = find("[data-noise]").disabled = Boolean(series());
    find("[data-noise]").checked = state.noise;
    find("[data-wake]").checked = state.wake;
    find("[data-length]").value = state.length;
    root.querySelectorAll("[data-signal]").forEach((b) => b.setAttribute("aria-pressed", b.dataset.signal === state.signal));
    for (const name of ["A", "B"]) {
      const { c, beta } = state[name];
      show(`${name}.beta`, number(+beta.toPrecision(3)));
      show(`${name}.c`, number(c));
      find(`[data-beta="${name}"]`).value = Math.asinh(beta) / SLIDE;
      find(`[data-c="${name}"]`).value = c;
      find(`[data-method="${name}"]`).value = methods.findIndex((m) => place(m).c === c && place(m).beta === beta);
    }
  }

  // -- controls -------------------------------------------------------------------------------------------------------
  function move(name, c, beta) {
    state[name] = { c: Math.min(1, Math.max(-1, Math.round(c * 100) / 100)), beta: kept(Math.abs(beta) < 0.02 ? 0 : beta) };
    state.active = name;
    redraw();
  }
  function setMethod(name, i) {
    if (i >= 0) state[name] = { c: place(methods[i]).c, beta: place(methods[i]).beta };
    state.active = name;
    redraw();
  }
  const on = (selector, act, event = "input") => root.querySelectorAll(selector).forEach((node) => node.addEventListener(event, () => act(node)));
  on("[data-signal]", (b) => choose(b.dataset.signal), "click");
  on("[data-t]", (input) => { state.t = +input.value; redraw(); });
  on("[data-size]", (input) => paint(state.t, +input.value <= -2.05 ? 0 : Math.pow(10, +input.value)));
  on("[data-noise]", (box) => { state.noise = box.checked; redraw(); }, "change");
  on("[data-wake]", (box) => { state.wake = box.checked; redraw(); }, "change");
  on("[data-length]", (select) => { state.length = +select.value; redraw(); }, "change");
  on("[data-method]", (select) => setMethod(select.dataset.method, +select.value), "change");
  on("[data-beta]", (input) => move(input.dataset.beta, state[input.dataset.beta].c, Math.sinh(input.value * SLIDE)));
  on("[data-c]", (input) => move(input.dataset.c, +input.value, state[input.dataset.c].beta));

  function paint(t, size, from = t) {
    if (series()) return;
    for (let i = Math.min(t, from); i <= Math.max(t, from); i++) state.sizes[i - 1] = size;
    if (state.signal === "spike" && state.spike.t === t) state.spike.size = size;
    redraw();
  }

  // Pointers: positions come from the chart's own coordinates, whatever its size on the screen.
  const at = (svg, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const drag = (svg, begin, go) => {
    let held = null;
    svg.addEventListener("pointerdown", (event) => {
      held = begin(event, at(svg, event));
      if (held === null) return;
      event.preventDefault();
      svg.setPointerCapture(event.pointerId);
      held = go(held, at(svg, event));
    });
    svg.addEventListener("pointermove", (event) => { if (held !== null) held = go(held, at(svg, event)); });
    for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => (held = null));
  };
  const gradientScales = () => {
    const width = room("gradient");
    return [memoryCharts.scale("linear", [1, T], [48, width - 14]), memoryCharts.scale("log", sizeDomain(), [176, 8])];
  };
  drag(chart("gradient"), (event) => (series() ? null : { spike: event.target.classList.contains("handle"), from: null }), (held, { x, y }) => {
    const [sx, sy] = gradientScales();
    const t = Math.round(sx.invert(x));
    const size = y > 172 ? 0 : sy.invert(y);
    if (held.spike) moveSpike(t, size);
    else paint(t, size, held.from || t);
    return { ...held, from: t };
  });
  drag(chart("plane"), (event) => { const dot = event.target.closest("[data-dot]"); return dot && dot.dataset.dot; }, (name, { x, y }) => {
    const { sx, sy } = chart("plane").scales;
    move(name, Math.round(sx.invert(x) * 20) / 20, sy.invert(y));
    return name;
  });

  window.memoryExplorer = { state, run, choose, redraw, T };
  for (const [name, kind] of [["A", "over"], ["B", "fading"]]) {
    const { c, beta } = place(methods.findLast((method) => method.kind === kind));
    state[name] = { c, beta };
  }
  choose("decay");
  new ResizeObserver(redraw).observe(root);
  root.dataset.ready = "true";
})();
