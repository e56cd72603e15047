/* The page of a network: kernels with heads that are switched on and off, the stream and the patterns of a sequence that can be edited. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const place = (id) => document.getElementById(id);
const fill = (node, ...children) => { node.replaceChildren(...children); return node; };

function labelled(text, control) { return element("label", {}, text, control); }
function choice(options, onchange) {
  const select = element("select");
  options.forEach((text, k) => select.append(element("option", { value: k }, text)));
  select.addEventListener("change", () => onchange(Number(select.value)));
  return select;
}

/* Kernels. */
function sharesOf(kernel, chosen) {
  return kernel.total.map((_, s) => sumPairs([s === 0 ? kernel.residual : [0, 0], ...chosen.map((h) => kernel.shares[h][s])]));
}

const hueOf = (kernel, h) => `hsl(${(360 * h) / kernel.shares.length} 65% 50%)`;

function showPanel(panel, root) {
  let kernel = panel.choices[0], on = new Set(), count = 0, scale = "linear";
  const controls = element("div", { class: "controls" }), heads = element("fieldset"), above = element("figure"), below = element("figure");
  const said = element("p", { class: "note", role: "status" });
  function reset() { on = new Set((kernel.shares || []).keys()); count = kernel.sums ? kernel.sums.length - 1 : 0; build(); draw(); }
  function build() {
    heads.hidden = Boolean(kernel.shares) && kernel.shares.length === 0;
    fill(heads, element("legend", {}, "heads"));
    if (kernel.shares) {
      const list = element("div", { class: "heads" });
      kernel.heads.forEach((head, h) => {
        const box = element("input", { type: "checkbox" });
        box.checked = on.has(h);
        box.addEventListener("change", () => { if (box.checked) on.add(h); else on.delete(h); draw(); });
        const decay = head.rpe === "table" ? "a bias per distance" : `p = ${short(head.decay)}`;
        const swatch = element("span", { class: "swatch", style: `background: ${hueOf(kernel, h)}`, "aria-hidden": "true" });
        list.append(element("label", {}, box, swatch, ` head ${head.head} (${head.rpe}, ${decay}), weight ${short(head.weight)}`));
      });
      const row = element("div", { class: "controls" });
      for (const [text, wanted] of [["all on", true], ["all off", false]]) {
        const button = element("button", { type: "button" }, text);
        button.addEventListener("click", () => { on = wanted ? new Set(kernel.shares.keys()) : new Set(); build(); draw(); });
        row.append(button);
      }
      heads.append(list, row);
    } else {
      const slider = element("input", { type: "range", min: 0, max: kernel.sums.length - 1, value: count, "aria-label": "heads that are added up" });
      slider.addEventListener("input", () => { count = Number(slider.value); draw(); });
      heads.append(labelled("heads that are added up, slowest first", slider));
    }
  }
  function draw() {
    const all = kernel.shares ? on.size === kernel.shares.length : count === kernel.sums.length - 1;
    const values = all ? kernel.total : kernel.shares ? sharesOf(kernel, [...on]) : kernel.sums[count].values;
    const many = kernel.shares ? on.size : kernel.sums[count].count, of = kernel.shares ? kernel.shares.length : kernel.sums[kernel.sums.length - 1].count;
    const series = [{ values, kind: "stem", label: "delivered" }];
    if (kernel.wanted) series.unshift({ values: kernel.wanted, kind: "ring", label: "wanted" });
    if (!of) return fill(above, stems(series, { scale, label: `response of ${panel.name} ${kernel.label}`, least: 1 }), element("figcaption", {}, `What ${panel.name} holds ${kernel.label}, s tokens after a single 1 (measured in float64, not certified).`));
    const title = `${panel.name}${panel.choices.length > 1 ? `, ${kernel.label}` : ""}: ${many} of ${of} heads`;
    fill(above, stems(series, { scale, label: `kernel of ${title}`, least: 1 }), element("figcaption", {}, `Sum of ${title}${kernel.wanted ? "; rings: what is wanted" : ""}.`));
    const off = kernel.wanted ? values.reduce((sum, v, s) => sum + Math.abs(v - kernel.wanted[s]), 0) : null;
    said.textContent = off === null ? "" : `Σ|delivered − wanted| over the ${values.length} distances shown: ${short(off, 4)} (computed in this page, not certified)`;
    if (!kernel.shares) return fill(below);
    const chosen = [...on].sort((a, b) => a - b).map((h) => ({ values: kernel.shares[h].map((v) => v[0]), kind: "dot", hue: (360 * h) / kernel.shares.length, label: `head ${kernel.heads[h].head}` }));
    if (kernel.residual[0] !== 0) chosen.push({ values: kernel.total.map((_, s) => (s === 0 ? kernel.residual[0] : NaN)), kind: "dot", label: "the embedding, at s = 0 only" });
    fill(below, stems(chosen, { scale: "logarithm", label: `shares of the heads of ${panel.name}` }), element("figcaption", {}, `Each head's share, in its colour, on a logarithmic scale with both signs: large weights of both signs cancel everywhere but where they should not.${kernel.residual[0] !== 0 ? ` The embedding itself adds ${short(kernel.residual[0])} at s = 0 (blue), which no switch takes away.` : ""}`));
    return undefined;
  }
  if (panel.choices.length > 1) controls.append(labelled(kernel.shares && kernel.shares.length === 0 ? "shown" : "kernel for", choice(panel.choices.map((one) => one.label), (k) => { kernel = panel.choices[k]; reset(); })));
  controls.append(labelled("scale", choice(["linear", "logarithm, both signs"], (k) => { scale = ["linear", "logarithm"][k]; draw(); })));
  const what = kernel.shares && kernel.shares.length === 0 ? "slot" : "memory";
  root.append(element("h3", {}, `${what} ${panel.name}`), controls, heads, above, said, below);
  reset();
}

/* Stream, outputs and patterns. */
const STATE = { tokens: [], found: null, source: null };

function tokenControls(t) {
  const token = STATE.tokens[t], change = (c, value) => { token[c] = value; STATE.source = null; compute(); };
  if (DATA.letters && Array.isArray(DATA.letters[0])) {
    const names = DATA.letters.map((letter) => letter.map((v) => short(v)).join(", "));
    const select = choice(names, (k) => { STATE.tokens[t] = DATA.letters[k].slice(); STATE.source = null; compute(); });
    select.value = DATA.letters.findIndex((letter) => letter.every((v, c) => v === token[c]));
    select.setAttribute("aria-label", `token ${t}`);
    return [[select]];
  }
  return token.map((value, c) => {
    const name = token.length > 1 ? `token ${t}, coordinate ${c + 1}` : `token ${t}`;
    if (DATA.letters) {
      const select = choice(DATA.letters.map((v) => short(v)), (k) => change(c, DATA.letters[k]));
      select.value = DATA.letters.indexOf(value);
      select.setAttribute("aria-label", name);
      return [select];
    }
    const input = element("input", { type: "number", min: DATA.domain[0], max: DATA.domain[1], step: "any", value, "aria-label": name });
    input.addEventListener("input", () => {
      const given = Number(input.value), good = input.value !== "" && given >= DATA.domain[0] && given <= DATA.domain[1];
      input.setAttribute("aria-invalid", String(!good));
      place("token-message").textContent = good ? "" : `token ${t}: a number from ${DATA.domain[0]} to ${DATA.domain[1]} is needed`;
      if (good) change(c, given);
    });
    return [input];
  });
}

function editor() {
  const head = element("tr", {}, element("th", { scope: "row" }, "position")), rows = [];
  STATE.tokens.forEach((_, t) => {
    head.append(element("th", { scope: "col" }, String(t)));
    tokenControls(t).forEach(([control], c) => {
      rows[c] = rows[c] || element("tr", {}, element("th", { scope: "row" }, DATA.dim > 1 && !(DATA.letters && Array.isArray(DATA.letters[0])) ? `token, coordinate ${c + 1}` : "token"));
      rows[c].append(element("td", {}, control));
    });
  });
  fill(place("tokens"), head, ...rows);
}

function load(source) {
  STATE.source = source;
  STATE.tokens = source.tokens.map((token) => token.slice());
  editor();
  compute();
}

function streamRow(name, values, largest, digits = 3) {
  const row = element("tr", {}, element("th", { scope: "row" }, name));
  values.forEach((v, t) => row.append(element("td", { class: t < DATA.settled ? "outside" : "", style: shade(v, largest), title: String(v) }, short(v, digits))));
  return row;
}

function showStream() {
  const body = place("values"), wanted = Number(place("stream-layer").dataset.layer || -1);
  body.replaceChildren();
  STATE.found.layers.forEach((layer, index) => {
    if (wanted >= 0 && index !== wanted) return;
    body.append(element("tr", { class: "group" }, element("th", { colspan: 3 }, `after the attention of layer ${index + 1}`)));
    for (const [name, j] of DATA.slots) {
      const values = layer.stream.map((u) => u[j]), largest = Math.max(...values.slice(Math.min(DATA.settled, values.length - 1)).map(Math.abs).filter(Number.isFinite), 0);
      body.append(streamRow(name, values, largest));
    }
  });
  body.append(element("tr", { class: "group" }, element("th", { colspan: 3 }, "read-out")));
  for (let c = 0; c < STATE.found.outputs[0].length; c++) {
    const values = STATE.found.outputs.map((y) => y[c]);
    body.append(streamRow(STATE.found.outputs[0].length > 1 ? `output ${c + 1}` : "output", values, Math.max(...values.map(Math.abs).filter(Number.isFinite), 0), 4));
  }
  const known = STATE.source && STATE.source.wanted, stored = known ? STATE.source.wanted : DATA.target ? wantedOf(DATA.target, STATE.tokens, DATA.letters) : null;
  if (stored) body.append(streamRow("wanted", stored, Math.max(...stored.map(Math.abs)), 4), streamRow("error", STATE.found.outputs.map((y, t) => (stored[t] === null ? null : y[0] - stored[t])), 0, 3));
  const marked = known ? STATE.source.position : -1;
  for (const row of place("stream").rows) if (row.cells.length > 2) [...row.cells].forEach((cell, k) => cell.classList.toggle("chosen", k === marked + 1 && k > 0));
  place("stream-note").textContent = stored ? "" : "Edited: what is wanted is stored for the two sequences of the page only.";
}

function showPattern() {
  const chosen = place("pattern-choice").dataset, layer = STATE.found.layers[Number(chosen.layer || 0)];
  const figure = place("pattern");
  if (!layer.patterns) return fill(figure, element("figcaption", {}, "This layer has too many heads for a page; `net.patterns(tokens)` has them all."));
  if (!layer.patterns.length || layer.silent) return fill(figure, element("figcaption", {}, "The heads of this layer write nothing: it only passes the stream to its feed-forward network."));
  const head = Math.min(Number(chosen.head || 0), layer.patterns.length - 1);
  const name = layer.labels ? `heads that write ${slotName(layer.labels[head])}, together` : `head ${head + 1}`;
  const title = `layer ${Number(chosen.layer || 0) + 1}, ${name}`;
  const note = layer.labels ? "What its heads deliver together: one row is the kernel that the lag slot of that position has chosen. Single heads have weights that cancel." : "Rows: positions that look; columns: tokens that are looked at; darker is more, relative to the largest.";
  return fill(figure, pattern(layer.patterns[head], `attention of ${title}`), element("figcaption", {}, `${title}. ${note}`));
}

const slotName = (row) => (DATA.slots.find(([, j]) => j === row) || [`coordinate ${row}`])[0];

function difference() {
  const own = runNetwork(DATA.engine, DATA.example.tokens).outputs.map((y) => (y.length === 1 ? y[0] : y));
  let most = 0;
  own.forEach((y, t) => { if (t >= DATA.settled || DATA.example.outputs.length <= DATA.settled) [y].flat().forEach((v, c) => { most = Math.max(most, Math.abs(v - [DATA.example.outputs[t]].flat()[c])); }); });
  return most;
}

function compute() {
  STATE.found = runNetwork(DATA.engine, STATE.tokens);
  showStream();
  showPattern();
}

function start() {
  const root = place("kernels");
  if (root) DATA.panels.forEach((panel) => showPanel(panel, root));
  if (!DATA.engine) return;
  const buttons = place("sequences");
  for (const [text, source] of [["random sequence", DATA.example], ["sequence with a large error", DATA.worst]]) {
    if (!source) continue;
    const button = element("button", { type: "button" }, text);
    button.addEventListener("click", () => load(source));
    buttons.append(button);
  }
  const zero = DATA.letters ? [DATA.letters[0]].flat() : Array(DATA.dim).fill(0);
  if (!DATA.letters) {
    const button = element("button", { type: "button" }, "a single 1");
    button.addEventListener("click", () => load({ tokens: DATA.example.tokens.map((_, t) => (t === 0 ? [1, ...zero.slice(1)] : zero.slice())), wanted: null }));
    buttons.append(button);
  }
  const count = DATA.engine.layers.length, layers = Array.from({ length: count }, (_, k) => `layer ${k + 1}`);
  if (count > 1) {
    place("stream-layer").append(labelled("show", choice(["all layers", ...layers], (k) => { place("stream-layer").dataset.layer = k - 1; showStream(); })));
    if (count > 4) { place("stream-layer").dataset.layer = count - 1; place("stream-layer").querySelector("select").value = count; }
  }
  const heads = element("span");
  function offer() {
    const layer = runNetwork(DATA.engine, DATA.example.tokens).layers[Number(place("pattern-choice").dataset.layer || 0)];
    if (!layer.patterns || layer.patterns.length < 2) return fill(heads);
    const names = layer.patterns.map((_, h) => (layer.labels ? slotName(layer.labels[h]) : `head ${h + 1}`));
    return fill(heads, labelled(layer.labels ? "memory" : "head", choice(names, (k) => { place("pattern-choice").dataset.head = k; showPattern(); })));
  }
  const first = runNetwork(DATA.engine, DATA.example.tokens).layers.findIndex((layer) => layer.patterns && layer.patterns.length > 0 && !layer.silent);
  place("pattern-choice").dataset.layer = Math.max(0, first);
  if (count > 1) place("pattern-choice").append(labelled("layer", choice(layers, (k) => { place("pattern-choice").dataset.layer = k; place("pattern-choice").dataset.head = 0; offer(); showPattern(); })));
  if (count > 1) place("pattern-choice").querySelector("select").value = Math.max(0, first);
  place("pattern-choice").append(heads);
  offer();
  place("difference").textContent = short(difference(), 3);
  load(DATA.example);
}

/* Arrows of the proof: from a lemma to those that it rests on. */
function arrows() {
  const root = document.querySelector(".proof");
  if (!root) return;
  const svg = root.querySelector("svg"), frame = root.getBoundingClientRect();
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
  for (const lemma of root.querySelectorAll(".lemma")) {
    for (const id of (lemma.dataset.uses || "").split(" ").filter(Boolean)) {
      const from = lemma.getBoundingClientRect(), to = place(id).getBoundingClientRect();
      const x = from.left + from.width / 2 - frame.left, y = from.bottom - frame.top, u = to.left + to.width / 2 - frame.left, v = to.top - frame.top;
      const bend = Math.max(14, (v - y) / 2);
      svg.append(element("path", { d: `M${x} ${y} C${x} ${y + bend} ${u} ${v - bend} ${u} ${v - 5}`, class: "edge" }), element("path", { d: `M${u - 4} ${v - 7} L${u} ${v - 1} L${u + 4} ${v - 7}`, class: "edge" }));
    }
  }
}

if (DATA.panels) start();
arrows();
window.addEventListener("resize", arrows);
window.addEventListener("beforeprint", arrows);
