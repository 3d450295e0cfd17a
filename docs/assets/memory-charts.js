// Small SVG charts for docs/memory-explorer.md: scales, axes, lines. No library.
const memoryCharts = (() => {
  const make = (name, attributes = {}, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  const bend = {
    linear: [(x) => x, (x) => x],
    log: [Math.log10, (x) => Math.pow(10, x)],
    asinh: [Math.asinh, Math.sinh],
  };

  // A scale from a domain to pixels; values outside are moved to its ends.
  const scale = (kind, [low, high], [from, to]) => {
    const [there, back] = bend[kind];
    const [a, b] = [there(low), there(high)];
    const at = (x) => from + ((there(Math.min(high, Math.max(low, x))) - a) / (b - a)) * (to - from);
    at.invert = (pixel) => Math.min(high, Math.max(low, back(a + ((pixel - from) / (to - from)) * (b - a))));
    return at;
  };

  const number = (x) => {
    if (x === 0) return "0";
    const size = Math.abs(x);
    if (size >= 1e5 || size < 1e-3) return x.toExponential().replace("e+", "e").replace("-", "−").replace("e-", "e−");
    return String(+x.toPrecision(4)).replace("-", "−");
  };

  const powers = ([low, high]) => {
    const found = [];
    for (let e = Math.ceil(Math.log10(low) - 1e-9); e <= Math.log10(high) + 1e-9; e++) found.push(Math.pow(10, e));
    return found;
  };

  // Draws axes and lines anew. Returns the scales, and the layer that marks can be added to.
  const draw = (svg, { x, y, lines = [], width, height, cursor, label }) => {
    const left = 48;
    const right = 14;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    if (label) svg.setAttribute("aria-label", label);
    const sx = scale(x.kind || "linear", x.domain, [left, width - right - (x.room || 0)]);
    const sy = scale(y.kind || "linear", y.domain, [height - 34, 8]);
    const end = width - right - (x.room || 0);
    for (const value of y.ticks || powers(y.domain)) {
      svg.append(
        make("line", { class: "grid", x1: left, x2: end, y1: sy(value), y2: sy(value) }),
        make("text", { class: "tick", x: left - 6, y: sy(value) + 4, "text-anchor": "end" }, number(value)),
      );
    }
    for (const value of x.ticks) {
      svg.append(
        make("line", { class: "grid", x1: sx(value), x2: sx(value), y1: 8, y2: height - 34 }),
        make("text", { class: "tick", x: sx(value), y: height - 20, "text-anchor": "middle" }, number(value)),
      );
    }
    svg.append(make("text", { class: "axis", x: (left + end) / 2, y: height - 4, "text-anchor": "middle" }, x.title));
    for (const { values, look, floor } of lines) {
      // A filled area stands on the axis; a line has a gap where it is below the chart.
      let path = floor ? `M${sx(1)},${sy(y.domain[0])}` : "";
      let down = Boolean(floor);
      values.forEach((value, i) => {
        const inside = floor || value >= y.domain[0];
        if (inside) path += `${down ? "L" : "M"}${sx(i + 1).toFixed(1)},${sy(Math.max(value, y.domain[0])).toFixed(1)}`;
        down = inside;
      });
      if (floor) path += `L${sx(values.length)},${sy(y.domain[0])}Z`;
      svg.append(make("path", { class: look, d: path }));
    }
    if (cursor) svg.append(make("line", { class: "cursor", x1: sx(cursor), x2: sx(cursor), y1: 8, y2: height - 34 }));
    return { sx, sy };
  };

  return { make, draw, number, scale };
})();
