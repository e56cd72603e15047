"use strict";
/* The network in float64, as plain as its formula; docs/pages.md says which engine is used when. None of this is certified. */

const dot = (a, b) => { let sum = 0; for (let i = 0; i < a.length; i++) sum += a[i] * b[i]; return sum; };
const times = (matrix, vector) => matrix.map((row) => dot(row, vector));
const plus = (a, b) => a.map((v, i) => v + b[i]);

/* The nearest integer, ties to even. */
function nearest(x) {
  const low = Math.floor(x), rest = x - low;
  return rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : low + 1;
}

function feedForward(ffn, u) {
  const hidden = ffn.inner.map((row, m) => Math.max(0, dot(row, u) + ffn.bias[m]));
  return times(ffn.outer, hidden).map((y, j) => {
    if (ffn.precision[j] === "integer") return nearest(y);
    return ffn.precision[j] === "log" ? Math.log(Math.max(1, nearest(Math.exp(y)))) : y;
  });
}

/* Streams are convolutions of the tokens. */
function runKernels(engine, tokens) {
  const layers = engine.layers.map((layer, index) => {
    const stream = tokens.map((_, t) => layer.kernels.map((row, j) => {
      let value = layer.offset[j];
      row.forEach((kernel, c) => { for (let s = 0; s <= t && s < kernel.length; s++) value += kernel[s] * tokens[t - s][c]; });
      return value;
    }));
    const heads = engine.heads[index];
    const patterns = heads && heads.map((weights) => tokens.map((_, t) => tokens.map((_, s) => (s <= t ? weights[t - s] : 0))));
    return { stream, patterns };
  });
  return { layers, outputs: layers[layers.length - 1].stream.map((u) => feedForward(engine.readout, u)) };
}

/* Every memory has one kernel per lag, chosen at each position by what its lag slot holds. */
function runLagged(engine, tokens) {
  let x = tokens.map((token) => plus(times(engine.embedding, token), engine.bias));
  const layers = [];
  engine.layers.forEach((layer, index) => {
    const patterns = [], labels = [];
    const between = x.map((u) => u.slice());
    for (const memory of layer.memories) {
      const held = x.map((u) => {
        const value = memory.form === "log" ? Math.exp(Math.min(u[memory.slot], 40)) : u[memory.slot];
        const lag = Math.min(Math.max(nearest(Number.isFinite(value) ? value : 1), memory.least), memory.least + memory.kernels.length - 1);
        return memory.kernels[lag - memory.least];
      });
      memory.rows.forEach((row, r) => {
        labels.push(row);
        patterns.push(x.map((_, t) => x.map((_, s) => (s <= t && held[t][r][0].length > t - s ? held[t][r][0][t - s] : 0))));
        x.forEach((_, t) => memory.columns.forEach((column, c) => {
          const kernel = held[t][r][c];
          for (let s = 0; s <= t && s < kernel.length; s++) if (kernel[s] !== 0) between[t][row] += kernel[s] * x[t - s][column];
        }));
      });
    }
    layers.push({ stream: between, patterns, labels });
    const last = index === engine.layers.length - 1;
    x = between.map((u) => (last ? feedForward(layer.ffn, u) : plus(u, feedForward(layer.ffn, u))));
  });
  return { layers, outputs: x };
}

const number = (value) => (value === null ? -Infinity : value);
const stretched = (rpe, s) => (rpe === "lin" ? s : Math.log(Math.max(s, 1)));

/* Log-weights, of linear heads scores, of one head: of the tokens for query t, of the constant past before the array, and of that past seen by itself. */
function scores(a, h, x, past) {
  const reads = ["dp", "nf", "linear"].includes(a.kind), infinite = a.window === "infinite";
  const ask = (u) => {
    if (reads) return times(a.query[h], u);
    return a.kind === "tmx" ? [a.decay[h] * stretched(a.rpe[h], dot(a.pointer[h], u))] : [0];
  };
  const keys = reads ? x.map((u) => times(a.key[h], u)) : null, pastKey = reads ? times(a.key[h], past) : null;
  const score = (query, key) => (reads ? dot(query, key) : query[0]);
  const rows = x.map((u, t) => {
    const query = ask(u);
    const inside = x.map((_, s) => {
      if (a.window !== "full") return s <= t ? number(a.bias[h][t - s]) + score(query, reads && keys[s]) : -Infinity;
      return -a.decay[h] * stretched(a.rpe[h], t - s) + score(query, reads && keys[s]);
    });
    return { inside, before: infinite ? number(a.beyond[h][t]) + score(query, pastKey) : -Infinity };
  });
  return { rows, whole: infinite ? number(a.whole[h]) + (a.kind === "nf" || a.kind === "tmx" ? score(ask(past), pastKey) : 0) : 0 };
}

function attend(a, x, past) {
  const change = x.map((u) => u.map(() => 0)), pastChange = past.map(() => 0), patterns = [];
  const free = a.kind === "dp-free" && a.window === "infinite", plain = a.kind === "nf" || a.kind === "tmx";
  for (let h = 0; h < a.rpe.length; h++) {
    const found = scores(a, h, x, past), values = x.map((u) => times(a.value[h], u)), pastValue = times(a.value[h], past);
    patterns.push(found.rows.map(({ inside, before }, t) => {
      let top = free ? found.whole : plain ? 0 : Math.max(before, ...inside);
      if (!Number.isFinite(top)) top = 0;
      let weights = inside.map((v) => Math.exp(v - top)), rest = Math.exp(before - top);
      if (a.kind === "linear") {
        const seen = inside.filter((v) => v !== -Infinity).length;
        weights = inside.map((v) => (v === -Infinity ? 0 : v / seen)); rest = 0;
      } else if (!free && !plain) {
        const total = weights.reduce((sum, w) => sum + w, rest) || 1;
        weights = weights.map((w) => w / total); rest /= total;
      }
      const mixed = pastValue.map((v, i) => weights.reduce((sum, w, s) => (w === 0 ? sum : sum + w * values[s][i]), rest === 0 ? 0 : rest * v));
      times(a.output[h], mixed).forEach((v, j) => { change[t][j] += v; });
      return weights;
    }));
    if (a.window === "infinite") {
      const seen = plain ? pastValue.map((v) => Math.exp(found.whole) * v) : pastValue;
      times(a.output[h], seen).forEach((v, j) => { pastChange[j] += v; });
    }
  }
  return { change, pastChange, patterns };
}

function runWeights(engine, tokens) {
  let x = tokens.map((token) => plus(times(engine.embedding, token), engine.bias)), past = engine.bias.slice();
  if (engine.positions) x = x.map((u, t) => plus(u, engine.positions[t]));
  const layers = [];
  engine.layers.forEach((layer, index) => {
    const { change, pastChange, patterns } = attend(layer.attention, x, past);
    const between = x.map((u, t) => plus(u, change[t])), pastBetween = plus(past, pastChange);
    const silent = layer.attention.output.flat(2).every((w) => w === 0);
    layers.push({ stream: between, patterns, silent });
    const last = index === engine.layers.length - 1;
    x = between.map((u) => (last ? feedForward(layer.ffn, u) : plus(u, feedForward(layer.ffn, u))));
    if (!last) past = plus(pastBetween, feedForward(layer.ffn, pastBetween));
  });
  return { layers, outputs: x };
}

const ENGINES = { kernels: runKernels, lagged: runLagged, weights: runWeights };
const runNetwork = (engine, tokens) => ENGINES[engine.kind](engine, tokens);

const PROFILES = { exp: Math.exp, sin: Math.sin, cos: Math.cos, tanh: Math.tanh, abs: Math.abs, relu: (v) => Math.max(v, 0) };

/* f(u) as a sum of ridges. */
function readOut(f, u) {
  return f.ridges.reduce((sum, one) => {
    const v = dot(one.direction, u) + one.offset;
    return sum + one.scale * (one.degree === null ? PROFILES[one.profile](v) : v ** one.degree);
  }, f.constant + dot(f.affine, u));
}

/* What the target wants at every position; null where its lags reach before the array, or letters lie as they cannot. */
function wantedOf(target, tokens, letters) {
  if (target.readings) {
    const index = tokens.map((token) => letters.findIndex((letter) => [letter].flat().every((v, c) => v === token[c])));
    return tokens.map((_, t) => {
      const found = target.readings.find(([distances, read]) => distances.every((s, k) => index[t - s] === read[k]));
      return found ? found[2] : null;
    });
  }
  return tokens.map((_, t) => readOut(target.readout, target.kernels.map((row) => {
    let value = 0;
    row.forEach((kernel, c) => { for (let s = 0; s <= t; s++) if (kernel[s]) value += kernel[s] * tokens[t - s][c]; });
    return value;
  })));
}

/* Sums of numbers given as pairs high + low, so that weights of 10^11 can cancel to 10^-15. */
function sumPairs(pairs) {
  let high = 0, low = 0;
  for (const [a, b] of pairs) {
    const sum = high + a, back = sum - high;
    low += (high - (sum - back)) + (a - back) + b;
    high = sum + low; low -= high - sum;
  }
  return high + low;
}
