/* The explorer: closed forms of the banks in float64, and the table of certified numbers beside them. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const place = (id) => document.getElementById(id);
const fill = (node, ...children) => { node.replaceChildren(...children); return node; };
const HEADS = [...Array.from({ length: 16 }, (_, k) => k + 1), 20, 24, 28, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];
const LEAST_BITS = 4, MOST_BITS = 64;
const state = { rpe: "lin", bank: "minimal", lag: 4, heads: 4, bits: 24 };
const unit = () => 2 ** -state.bits;
const law = (rpe, lag) => (rpe === "mixed" ? Math.floor(lag / 2) + 1 : lag);

function zeta(p, from = 1) {
  let sum = 0;
  const end = from + 12;
  for (let k = from; k < end; k++) sum += k ** -p;
  const last = end ** -p;
  return sum + (last * end) / (p - 1) + last / 2 + (p * last) / end / 12 - (p * (p + 1) * (p + 2) * last) / end ** 3 / 720;
}

/* Nodes z_h = b(1 − cos(πh/H))/2; κ follows the recurrence of Π(x − z_h), so that nothing cancels; weights are A_h/(1 − z_h). */
function minimalLin(lag, heads, b) {
  const z = Array.from({ length: heads }, (_, k) => (b * (1 - Math.cos((Math.PI * (k + 1)) / heads))) / 2);
  let e = [1];
  for (const node of z) { const next = [...e, 0]; for (let j = 1; j < next.length; j++) next[j] = (e[j] || 0) + node * e[j - 1]; e = next; }
  const atOne = z.reduce((product, node) => product * (1 - node), 1);
  const error = lag === heads ? 1 / atOne - 1 : e.slice(heads - lag + 1).reduce((sum, v) => sum + v, 0) / atOne;
  const raw = z.map((node, h) => {
    let rest = [1], differences = 1;
    z.forEach((other, j) => { if (j !== h) { const next = [...rest, 0]; for (let i = 1; i < next.length; i++) next[i] = (rest[i] || 0) + other * rest[i - 1]; rest = next; differences *= node - other; } });
    return ((-1) ** (heads - lag) * rest[heads - lag]) / (node * differences);
  });
  const weights = raw.map((a, h) => a / (1 - z[h])), residual = -sumPairs(raw.map((a) => [a, 0]));
  const kernel = [0];
  for (let s = 1; s < 2 * lag + 8; s++) {
    if (s <= heads) kernel.push(s === lag ? 1 : 0);
    else { let v = 0; for (let j = 1; j <= heads; j++) v += (j % 2 ? 1 : -1) * e[j] * kernel[s - j]; kernel.push(v); }
  }
  return { kernel, error, weights, residual, price: weights.reduce((sum, v) => sum + Math.abs(v), Math.abs(residual)), decays: z.map((v) => -Math.log(v)) };
}

/* p_h = B + η(h − 1) and κ(s) = (T/s)^B Π_{j≤H, j≠T} (s^−η − j^−η)/(T^−η − j^−η). */
function minimalLog(lag, heads, base, step) {
  const others = Array.from({ length: heads }, (_, k) => k + 1).filter((j) => j !== lag);
  const at = (s) => (s === 0 ? 0 : others.reduce((v, j) => (v * (s ** -step - j ** -step)) / (lag ** -step - j ** -step), (lag / s) ** base));
  let polynomial = [1];
  for (const j of others) { const root = j ** -step, next = [0, ...polynomial]; polynomial.forEach((c, k) => { next[k] -= root * c; }); polynomial = next; }
  const scale = others.reduce((v, j) => v / (lag ** -step - j ** -step), lag ** base);
  const decays = polynomial.map((_, k) => base + step * k), weights = polynomial.map((c, k) => scale * c * zeta(decays[k]));
  const product = others.reduce((v, j) => v / Math.abs(1 - (j / lag) ** step), 1);
  return { kernel: Array.from({ length: 2 * lag + 8 }, (_, s) => at(s)), error: product * lag ** base * zeta(base, heads + 1), weights, residual: 0, price: weights.reduce((sum, v) => sum + Math.abs(v), 0), decays };
}

function golden(f, low, high, steps = 40) {
  const share = (Math.sqrt(5) - 1) / 2;
  let a = high - share * (high - low), b = low + share * (high - low), fa = f(a), fb = f(b);
  for (let k = 0; k < steps; k++) {
    if (!(fa > fb)) { high = b; b = a; fb = fa; a = high - share * (high - low); fa = f(a); }
    else { low = a; a = b; fa = fb; b = low + share * (high - low); fb = f(b); }
  }
  return (low + high) / 2;
}

function minimal(rpe, lag, heads, u) {
  const total = (bank) => { const value = bank.error + u * bank.price; return Number.isFinite(value) ? value : Infinity; };
  if (rpe === "lin") return minimalLin(lag, heads, 1 / (1 + Math.exp(-golden((v) => total(minimalLin(lag, heads, 1 / (1 + Math.exp(-v)))), -40, 10))));
  let base = Math.log(16), step = Math.log(heads);
  for (let k = 0; k < (heads > 1 ? 3 : 1); k++) {
    base = golden((v) => total(minimalLog(lag, heads, Math.exp(v), Math.exp(step))), Math.log(1.5), Math.log(200), 30);
    if (heads > 1) step = golden((v) => total(minimalLog(lag, heads, Math.exp(base), Math.exp(v))), Math.log(0.05), Math.log(100), 30);
  }
  return minimalLog(lag, heads, Math.exp(base), Math.exp(step));
}

/* κ(s) = w(s) Q(x_s), Q the interpolant of a bump in H Chebyshev points of [0, 1], by the barycentric formula. */
function interpolating(rpe, lag, heads, { alpha, gamma }) {
  const lin = rpe === "lin", x = (s) => (lin ? Math.exp(-alpha * s) : s ** -alpha), slow = (s) => (lin ? Math.exp(-gamma * s) : s ** (-1 - gamma));
  const mu = x(lag), sigma = mu - x(lag + 1), height = Math.E / slow(lag);
  const bump = (v) => { const w = (v - mu) / sigma; return Math.abs(w) < 1 ? height * Math.exp(-1 / (1 - w * w)) : 0; };
  const nodes = Array.from({ length: heads }, (_, k) => (1 + Math.cos((Math.PI * k) / Math.max(1, heads - 1))) / 2), values = nodes.map(bump);
  const q = (v) => {
    let above = 0, below = 0;
    for (let k = 0; k < heads; k++) {
      if (Math.abs(v - nodes[k]) < 1e-300) return values[k];
      const w = ((k % 2 ? -1 : 1) * (k === 0 || k === heads - 1 ? 0.5 : 1)) / (v - nodes[k]);
      above += w * values[k]; below += w;
    }
    return above / below;
  };
  const kernel = Array.from({ length: 2 * lag + 8 }, (_, s) => (s === 0 && !lin ? 0 : slow(s) * q(x(s))));
  let error = 0;
  for (let s = lin ? 0 : 1; s < 4000; s++) error += Math.abs(slow(s) * q(x(s)) - (s === lag ? 1 : 0));
  return { kernel, error, weights: null, price: null, decays: null };
}

const near = (rows, wanted) => rows.find((row) => Object.entries(wanted).every(([key, value]) => row[key] === value));

function current() {
  const { rpe, bank, lag, heads, bits } = state;
  if (heads < law(rpe, lag)) return { none: `${heads} ${rpe === "mixed" ? "heads of both types" : `${rpe} heads`} are fewer than the ${law(rpe, lag)} of the lag law: whatever decays, weights and read-out, the error is at least 1.` };
  if (bank === "best") {
    const row = near(DATA.limits, { rpe, lag, bits });
    if (!row) return { empty: "The table has no bank here: move the sliders to 8, 11, 24 or 53 bits and a shorter lag." };
    if (!row.kernel) return { row, empty: "No bank beats the zero network in this arithmetic." };
    if (row.heads.length > heads) return { row, empty: `The bank of the table has ${row.heads.length} heads: move the slider up to see it.` };
    return { row, kernel: row.kernel, weights: row.heads.map((head) => head[2]), decays: row.heads.map((head) => head[1]), price: row.weights, total: row.upper, certified: true, heads: row.heads.length };
  }
  if (rpe === "mixed") return { empty: "For heads of both types the explorer has the table's best banks only: choose the bank “best found”." };
  if (bank === "minimal") {
    const used = Math.min(heads, lag + 6), found = minimal(rpe, lag, used, unit()), row = used === lag && near(DATA.minimal, { rpe, lag, bits });
    if (row) return { ...found, error: row.error, price: row.weights, total: row.total, certified: true, heads: used };
    return { ...found, total: found.error + unit() * found.price, certified: false, heads: used };
  }
  const same = DATA.interpolation.filter((row) => row.rpe === rpe && row.bank === bank && row.lag === lag);
  if (!same.length) return { empty: "The table has no free parameters of this bank for so long a lag." };
  const row = near(same, { heads }), found = interpolating(rpe, lag, heads, row || same[0]);
  return { ...found, promised: row ? row.error : null, heads };
}

const item = (name, value, badge) => [element("dt", {}, name), element("dd", {}, value, " ", element("span", { class: `badge ${badge === "certified" ? "holds" : "measured"}` }, badge))];
const CERTIFIED = "certified", COMPUTED = "computed, not certified";

function facts(found) {
  const { rpe, lag, bits } = state, list = [];
  const row = near(DATA.limits, { rpe, lag, bits }), far = near(DATA.horizons, { rpe, bits });
  list.push(...item("heads that any error below 1 needs", `${law(rpe, lag)} (lag law)`, CERTIFIED));
  if (found.none) list.push(...item("error", "≥ 1", CERTIFIED));
  if (found.total !== undefined) {
    if (found.error !== undefined) list.push(...item("error of the kernel, ‖κ − 1_T‖₁", `≤ ${short(found.error, 5)}`, found.certified ? CERTIFIED : COMPUTED));
    list.push(...item("Σ|weights|", short(found.price, 4), found.certified ? CERTIFIED : COMPUTED));
    list.push(...item("error + u·Σ|weights|", `≤ ${short(found.total, 5)}`, found.certified ? CERTIFIED : COMPUTED));
  } else if (found.kernel) {
    list.push(...item("error of the kernel, sum over 4000 distances", short(found.error, 5), COMPUTED));
    list.push(...(found.promised !== null ? item("error that the theorem promises", `≤ ${short(found.promised, 5)}`, CERTIFIED) : item("error that the theorem promises", "no row of the table here; powers of 2 from 8 to 1024 have one", COMPUTED)));
  }
  if (row) list.push(...item("least error of any bank in this arithmetic", `${short(row.lower, 5)} ≤ E_u ≤ ${short(row.upper, 5)}`, CERTIFIED));
  const rule = Math.floor((bits * Math.LN2) / Math.PI);
  list.push(...(far ? item("horizon (largest lag with E_u < 1/2)", String(far.horizon), CERTIFIED) : item("horizon by the rule ⌊ln(1/u)/π⌋ of lin heads", String(rule), COMPUTED)));
  return list;
}

function curve() {
  const { rpe, bits } = state, lags = Array.from({ length: 12 }, (_, k) => k + 1);
  const low = DATA.limits.filter((row) => row.rpe === rpe && row.bits === bits);
  const series = [];
  if (low.length) series.push({ values: [null, ...lags.map((lag) => { const row = near(low, { lag }); return row ? Math.min(row.upper, 1) : NaN; })], kind: "stem", label: "least error of any bank, certified" });
  if (rpe !== "mixed") series.push({ values: [null, ...lags.map((lag) => Math.min(1, (({ error, price }) => error + unit() * price)(minimal(rpe, lag, lag, unit()))))], kind: "ring", label: "minimal bank, computed" });
  return series;
}

function show() {
  const found = current(), { rpe, bank, lag, heads, bits } = state;
  place("said").textContent = `lag ${lag}, ${heads} heads, ${bits} bits (u = 2^−${bits}${({ 8: ", bfloat16", 11: ", float16", 24: ", float32", 53: ", float64" })[bits] || ""}), ${rpe}, ${bank === "best" ? "best found" : bank}`;
  fill(place("facts"), ...facts(found));
  const words = found.none || found.empty;
  const wanted = Array.from({ length: 2 * lag + 8 }, (_, s) => Number(s === lag));
  fill(place("kernel"), words ? element("p", { class: "note" }, words) : stems([{ values: wanted, kind: "ring", label: "wanted" }, { values: found.kernel, kind: "stem", label: "delivered" }], { label: `kernel for lag ${lag}, ${found.heads} heads`, least: 1 }), element("figcaption", {}, words ? "" : "Kernel κ(s); rings: what is wanted."));
  const has = !words && found.weights;
  fill(place("weights"), has ? stems([{ values: found.weights, kind: "stem", label: "weight" }], { scale: "logarithm", label: "weights of the heads", axis: "head", first: 1 }) : element("p", { class: "note" }, words ? "" : "These weights are far beyond floats: 10 to the power of about the number of heads. Exact arithmetic holds them."), element("figcaption", {}, has ? `Weights of ${found.weights.length} heads, logarithmic scale with both signs; decays ${found.decays.slice(0, 8).map((p) => short(p)).join(", ")}${found.decays.length > 8 ? ", …" : ""}.` : ""));
  fill(place("curve"), stems(curve(), { label: `error against lag, ${rpe} heads, ${bits} bits`, least: 1, axis: "lag T" }), element("figcaption", {}, "Error against lag in this arithmetic: stems, the least error of any bank (certified upper side, where the table has one); rings, the minimal bank of T heads (computed, not certified)."));
}

function slider(id, label, values, key, text = String) {
  const input = element("input", { type: "range", id, min: 0, max: values.length - 1, step: 1, value: values.indexOf(state[key]) });
  const said = element("output", { for: id }, text(state[key]));
  input.setAttribute("aria-valuetext", text(state[key]));
  input.addEventListener("input", () => { state[key] = values[Number(input.value)]; said.textContent = text(state[key]); input.setAttribute("aria-valuetext", text(state[key])); show(); });
  return element("p", { class: "controls" }, element("label", { for: id }, label), input, said);
}

function pick(label, names, key) {
  const select = element("select", { id: key });
  for (const [value, text] of names) select.append(element("option", { value }, text));
  select.addEventListener("change", () => { state[key] = select.value; show(); });
  return element("label", { for: key }, label, select);
}

const range = (low, high) => Array.from({ length: high - low + 1 }, (_, k) => low + k);
fill(place("controls"),
  element("div", { class: "controls" }, pick("relative positions", [["lin", "lin, e^−ps"], ["log", "log, s^−p"], ["mixed", "both types"]], "rpe"), pick("bank", [["minimal", "minimal"], ["tuned", "tuned"], ["paper", "paper"], ["best", "best found"]], "bank")),
  slider("lag", "lag T", range(1, 12), "lag"), slider("heads", "heads H", HEADS, "heads"), slider("bits", "bits", range(LEAST_BITS, MOST_BITS), "bits"));
show();
