/* Plain SVG: stems, dots, patterns. */

const SVG = "http://www.w3.org/2000/svg";
function element(name, attributes = {}, ...children) {
  const node = ["svg", "g", "line", "circle", "rect", "path", "text", "title"].includes(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function short(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value), text = size >= 1e5 || size < 1e-3 ? value.toExponential(Math.max(0, digits - 2)) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−").replace("e+", "e").replace("e-", "e−");
}

const FLOOR = 1e-4;
const SCALES = {
  linear: { to: (v) => v, back: (v) => v },
  logarithm: { to: (v) => Math.sign(v) * Math.log10(1 + Math.abs(v) / FLOOR), back: (v) => Math.sign(v) * FLOOR * (10 ** Math.abs(v) - 1) },
};

function ticks(low, high, scale) {
  if (scale === "linear") {
    const raw = (high - low) / 4, unit = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find((k) => k * unit >= raw) * unit, found = [];
    for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k++) found.push(k * step);
    return found;
  }
  const top = Math.max(Math.abs(low), Math.abs(high)), most = Math.ceil(Math.log10(Math.max(top, 10 * FLOOR)));
  const stride = Math.max(1, Math.ceil((most + 3) / 4)), found = [0];
  for (let e = most; e >= -3; e -= stride) { if (10 ** e <= high * 1.001) found.push(10 ** e); if (-(10 ** e) >= low * 1.001) found.push(-(10 ** e)); }
  return found.sort((a, b) => a - b);
}

/* series: [{values, kind: "stem" | "ring" | "dot", hue, label}] over s = 0, 1, …; returns an <svg>. */
function stems(series, { scale = "linear", label = "", least = 0, axis = "distance s", first = 0 } = {}) {
  const width = window.innerWidth < 560 ? 380 : 640, height = 230, left = 62, right = 12, top = 12, bottom = 36, count = Math.max(1, ...series.map((one) => one.values.length));
  const all = series.flatMap((one) => one.values).filter(Number.isFinite);
  let low = Math.min(0, ...all), high = Math.max(least, ...all);
  if (high === low) high = low + 1;
  const { to } = SCALES[scale], a = to(low), b = to(high), room = (b - a) * 0.06;
  const x = (s) => left + 10 + ((width - left - right - 20) * s) / Math.max(1, count - 1);
  const y = (v) => top + ((b + room - to(v)) / (b - a + 2 * room)) * (height - top - bottom);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, width, height });
  svg.append(element("title", {}, label));
  const drawn = [];
  for (const v of ticks(low, high, scale).sort((one, other) => Math.abs(one) - Math.abs(other))) {
    if (drawn.some((other) => Math.abs(other - y(v)) < 13)) continue;
    drawn.push(y(v));
    svg.append(element("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), class: "tick" }));
    svg.append(element("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, short(v, 3)));
  }
  svg.append(element("line", { x1: left, x2: width - right, y1: y(0), y2: y(0), class: "axis", style: "stroke: var(--ink)" }));
  const stride = Math.ceil(count / (width < 500 ? 9 : 16));
  for (let s = 0; s < count; s += stride) svg.append(element("text", { x: x(s), y: height - bottom + 16, "text-anchor": "middle" }, String(s + first)));
  svg.append(element("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, axis));
  series.forEach((one, k) => one.values.forEach((v, s) => {
    if (!Number.isFinite(v)) return;
    const hue = one.hue === undefined ? "" : `hsl(${one.hue} 65% 50%)`, shift = one.kind === "dot" || one.kind === "shifted" ? (k / Math.max(1, series.length - 1) - 0.5) * 9 : 0;
    const hint = element("title", {}, `${one.label}: ${short(v, 6)} at ${s + first}`);
    if (one.kind === "stem") svg.append(element("line", { x1: x(s), x2: x(s), y1: y(0), y2: y(v), class: "stem" }));
    if (one.kind === "shifted") svg.append(element("line", { x1: x(s) + shift, x2: x(s) + shift, y1: y(0), y2: y(v), style: `stroke: ${hue}; stroke-width: 2` }));
    const shape = { cx: x(s) + shift, cy: y(v), r: one.kind === "ring" ? 6 : one.kind === "stem" ? 3.6 : 3, class: one.kind === "ring" ? "wanted" : "dot" };
    if (hue && one.kind !== "ring") shape.style = `fill: ${hue}`;
    svg.append(element("circle", shape, hint));
  }));
  return svg;
}

/* Attention weights of queries (rows) on tokens (columns). */
function pattern(weights, label) {
  const count = weights.length, size = Math.max(7, Math.min(22, 440 / count)), left = 34, top = 26;
  const svg = element("svg", { viewBox: `0 0 ${left + size * count + 6} ${top + size * count + 6}`, role: "img", "aria-label": label, width: left + size * count + 6, height: top + size * count + 6 });
  const largest = Math.max(1e-300, ...weights.flat().map(Math.abs).filter(Number.isFinite)), stride = Math.ceil(count / 12);
  svg.append(element("title", {}, label));
  for (let k = 0; k < count; k += stride) {
    svg.append(element("text", { x: left + size * (k + 0.5), y: top - 6, "text-anchor": "middle" }, String(k)));
    svg.append(element("text", { x: left - 6, y: top + size * (k + 0.5) + 4, "text-anchor": "end" }, String(k)));
  }
  weights.forEach((row, t) => row.forEach((w, s) => {
    const box = { x: left + size * s, y: top + size * t, width: size - 1, height: size - 1 };
    svg.append(element("rect", { ...box, fill: "none", stroke: "var(--line)", "stroke-width": 0.4 }));
    if (w !== 0) svg.append(element("rect", { ...box, class: w < 0 ? "cell minus" : "cell", "fill-opacity": Math.max(0.04, Math.abs(w) / largest).toFixed(3) }, element("title", {}, `position ${t} on token ${s}: ${short(w, 4)}`)));
  }));
  return svg;
}

const shade = (value, largest) => (Number.isFinite(value) && largest > 0 ? `background: rgba(var(--${value < 0 ? "minus" : "plus"}), ${(0.55 * Math.min(1, Math.abs(value) / largest)).toFixed(3)})` : "");
