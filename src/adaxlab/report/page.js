"use strict";
(() => {
  const root = document.documentElement;
  const looks = JSON.parse(document.getElementById("looks").textContent);
  const hidden = new Set();
  const views = new Map();
  const tip = document.getElementById("tip");
  const spec = (n) => JSON.parse(document.getElementById("spec-" + n).textContent);

  // Theme: the system's, until the reader chooses. Charts hold CSS variables, so nothing is drawn again.
  const button = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const now = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const label = () => { button.textContent = now() === "dark" ? "☀ Light" : "☾ Dark"; };
  try { const kept = localStorage.getItem("adax-theme"); if (kept === "dark" || kept === "light") root.dataset.theme = kept; } catch { /* no storage */ }
  button.addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    try { localStorage.setItem("adax-theme", root.dataset.theme); } catch { /* no storage */ }
    label();
  });
  dark.addEventListener("change", label);
  label();

  // Tooltip: text only (textContent), so that no name in a record can become markup.
  const el = (tag, kind, text) => { const e = document.createElement(tag); if (kind) e.className = kind; if (text !== undefined) e.textContent = text; return e; };
  const swatch = (name) => { const chip = document.querySelector(`.chip[data-index="${looks.indexOf(name)}"] .swatch`); return chip ? chip.cloneNode(true) : null; };
  function tooltip(_, event, __, value) {
    if (value === null || value === undefined || value === "") {
      if (event.pointerType !== "touch") tip.className = "";  // after a tap it stays until the next one
      return;
    }
    tip.replaceChildren();
    const rows = typeof value === "object" ? Object.entries(value) : [["", String(value)]];
    const body = el("table");
    rows.forEach(([key, text], i) => {
      if (hidden.has(key) || text === "undefined" || text === "null" || text === "") return;
      if (i === 0) {
        const head = el("div", "head");
        const mark = swatch(String(text));
        if (mark) head.append(mark);
        head.append(key === "optimizer" || !key ? String(text) : key + " " + text);
        tip.append(head);
        return;
      }
      const line = el("tr"), name = el("td", "", key), mark = swatch(key);
      if (mark) name.prepend(mark);
      line.append(name, el("td", "", String(text)));
      body.append(line);
    });
    tip.append(body);
    tip.className = "on";
    const box = tip.getBoundingClientRect(), gap = 14;
    let x = event.clientX + gap, y = event.clientY + gap;
    if (x + box.width > innerWidth - 8) x = event.clientX - box.width - gap;
    if (y + box.height > innerHeight - 8) y = event.clientY - box.height - gap;
    tip.style.left = Math.min(Math.max(8, x), Math.max(8, innerWidth - box.width - 8)) + "px";
    tip.style.top = Math.max(8, y) + "px";
  }
  addEventListener("pointerdown", () => { tip.className = ""; }, { capture: true });
  addEventListener("scroll", () => { tip.className = ""; }, { passive: true });

  const options = { mode: "vega-lite", actions: false, defaultStyle: false, logLevel: 1, hover: true };
  async function draw(box) {
    try {
      const { view } = await vegaEmbed(box, spec(box.dataset.figure), { ...options, renderer: "svg", tooltip });
      views.set(box.dataset.figure, view);
      view.addEventListener("pointerdown", (event, item) => { if (event.pointerType === "touch" && item) tooltip(null, event, item, item.tooltip); });
    } catch (error) {
      box.classList.add("failed");
      box.textContent = "This chart could not be drawn: " + error.message;
      console.error(error);
    }
  }

  // Optimizer switches: one set of hidden names, told to every chart and every table row.
  const chips = [...document.querySelectorAll(".chip")];
  function show() {
    for (const chip of chips) chip.setAttribute("aria-pressed", String(!hidden.has(looks[chip.dataset.index])));
    for (const row of document.querySelectorAll("tr[data-index]")) row.classList.toggle("off", hidden.has(looks[row.dataset.index]));
    const names = [...hidden];
    return Promise.all([...views.values()].map((view) => {
      try { return view.signal("hidden", names).runAsync(); } catch { return null; }
    }));
  }
  for (const chip of chips) {
    const name = looks[chip.dataset.index];
    chip.addEventListener("click", (event) => {
      if (event.altKey || event.shiftKey) {
        hidden.clear();
        for (const other of looks) if (other !== name) hidden.add(other);
      } else if (!hidden.delete(name)) hidden.add(name);
      show();
    });
  }
  const all = document.querySelector(".chips .all");
  if (all) all.addEventListener("click", () => { hidden.clear(); show(); });

  // Saved pictures: the chart as shown, with paper, title and legend of its own.
  function concrete(node, style) {
    if (typeof node === "string") return node.replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
    if (Array.isArray(node)) return node.map((n) => concrete(n, style));
    if (node && typeof node === "object") {
      const out = {};
      for (const [key, value] of Object.entries(node)) if (!(key === "legend" && value === null)) out[key] = key === "datasets" ? value : concrete(value, style);
      return out;
    }
    return node;
  }
  const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "report";
  function store(address, name) {
    const link = el("a");
    link.href = address;
    link.download = name;
    link.click();
  }
  async function save(number, kind) {
    const style = getComputedStyle(root);
    const figure = document.getElementById("figure-" + number);
    const title = figure.querySelector("h3").textContent;
    const chart = concrete(spec(number), style);
    chart.title = title;
    chart.padding = 16;
    chart.config.background = style.getPropertyValue("--paper").trim();
    chart.config.font = "Helvetica, Arial, sans-serif";
    if (chart.width === "container") { chart.width = 560; delete chart.autosize; }
    for (const param of chart.params || []) if (param.name === "hidden") param.value = [...hidden];
    const { view } = await vegaEmbed(el("div"), chart, { ...options, renderer: "svg" });
    store(await view.toImageURL(kind, kind === "png" ? 2 : 1), slug(title) + "." + kind);
    view.finalize();
  }
  for (const b of document.querySelectorAll("[data-save]")) b.addEventListener("click", () => save(b.dataset.figure, b.dataset.save));

  // Data: the runs as JSON lines, in the page as gzip; the tables are made from them.
  async function records() {
    const packed = Uint8Array.from(atob(document.getElementById("records").textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  const plain = (value) => (value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
  function csv(rows) {
    const heads = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    const cell = (value) => (/[",\r\n]/.test(plain(value)) ? '"' + plain(value).replace(/"/g, '""') + '"' : plain(value));
    return [heads, ...rows.map((row) => heads.map((head) => row[head]))].map((line) => line.map(cell).join(",") + "\n").join("");
  }
  const status = (run) => (run.done ? run.done.status : run.error ? "failed" : "unfinished");
  const about = ({ spec, path }) => ({ study: spec.study, run: path.split("/").pop(), optimizer: spec.row || spec.optimizer, purpose: spec.purpose, seed: spec.seed, lr: spec.options.lr });
  const tables = {
    runs: (runs) => runs.map((run) => {
      const { lr, ...rest } = run.spec.options;
      const done = run.done || {};
      return { ...about(run), status: status(run), metric_name: done.metric_name, metric: done.metric, best: done.best, train_loss: done.train_loss, steps: done.steps, seconds: done.seconds, error: run.error, options: rest, task: run.spec.task, epochs: run.spec.epochs, batch_size: run.spec.batch_size };
    }),
    curves: (runs) => runs.flatMap((run) => {
      const columns = Object.entries(run.metrics);
      const length = columns.length ? columns[0][1].length : 0;
      return Array.from({ length }, (_, i) => ({ ...about(run), ...Object.fromEntries(columns.map(([key, values]) => [key === "lr" ? "lr now" : key, values[i]])) }));
    }),
  };
  async function download(kind) {
    const text = await records();
    const runs = text.trim().split("\n").slice(1).map((line) => JSON.parse(line));
    const body = kind === "json" ? text : csv(tables[kind](runs));
    const type = kind === "json" ? "application/json" : "text/csv";
    const address = URL.createObjectURL(new Blob([body], { type }));
    store(address, slug(document.title) + (kind === "json" ? ".jsonl" : `-${kind}.csv`));
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }
  for (const b of document.querySelectorAll("[data-download]")) b.addEventListener("click", () => download(b.dataset.download));

  Promise.all([...document.querySelectorAll(".chart")].map(draw)).then(() => { root.dataset.ready = "true"; });
  window.adaxReport = { views, hidden };
})();
