"use strict";
// Means over seeds with intervals, by the rules of rlzoo_plus/analysis/estimates.py and curves.py.

const ENOUGH_SEEDS = 5;
const RESAMPLES = 2000;
const MOST_POINTS = 100;

// mulberry32: the same draws at each look.
function generator(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// Of sorted values: without the lowest and the highest quarter for `iqm`.
function middle(sorted, how) {
  const cut = how === "iqm" ? Math.floor(sorted.length / 4) : 0;
  let sum = 0;
  for (let i = cut; i < sorted.length - cut; i++) sum += sorted[i];
  return sum / (sorted.length - 2 * cut);
}

function quantile(sorted, share) {
  const place = share * (sorted.length - 1);
  const low = Math.floor(place);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - low);
}

const drawsOf = new Map();

// How often each of n values is in each resample, the same for all points of a curve.
function draws(n) {
  if (!drawsOf.has(n)) {
    const random = generator(n), count = n > 40 ? RESAMPLES / 4 : RESAMPLES;
    drawsOf.set(n, Array.from({ length: count }, () => {
      const counts = new Uint16Array(n);
      for (let i = 0; i < n; i++) counts[Math.floor(random() * n)]++;
      return counts;
    }));
  }
  return drawsOf.get(n);
}

// A 95 % percentile bootstrap interval; none below five values.
function interval(values, how) {
  const n = values.length;
  if (n < ENOUGH_SEEDS) return [null, null];
  const order = values.map((_, i) => i).sort((a, b) => values[a] - values[b]);
  const cut = how === "iqm" ? Math.floor(n / 4) : 0;
  const means = draws(n).map((counts) => {
    let seen = 0, sum = 0;
    for (const i of order) {
      // Of the sorted resample, the part of this value between the cuts.
      const from = Math.max(seen, cut);
      seen += counts[i];
      const kept = Math.min(seen, n - cut) - from;
      if (kept > 0) sum += kept * values[i];
    }
    return sum / (n - 2 * cut);
  });
  means.sort((a, b) => a - b);
  return [quantile(means, 0.025), quantile(means, 0.975)];
}

function estimate(values, how) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (!known.length) return null;
  known.sort((a, b) => a - b);
  const [low, high] = interval(known, how);
  return { value: middle(known, how), low, high, n: known.length };
}

// The value at a place between known ones, null outside of them.
function interpolated(known, values, place) {
  const last = known.length - 1;
  if (last < 0 || place < known[0] || place > known[last]) return null;
  let low = 0, high = last;
  while (high - low > 1) {
    const half = (low + high) >> 1;
    if (known[half] <= place) low = half;
    else high = half;
  }
  if (known[high] === known[low]) return values[low];
  const share = (place - known[low]) / (known[high] - known[low]);
  return values[low] + (values[high] - values[low]) * share;
}

// An exponential moving average without a bias to its first value, as TensorBoard has it.
function smoothed(values, weight) {
  if (!weight) return values;
  let last = 0, mass = 0;
  return values.map((value) => {
    last = last * weight + (1 - weight) * value;
    mass = mass * weight + (1 - weight);
    return last / mass;
  });
}

// The mean of curves where all have values; one that got less than half as far is left out.
function band(curves, how) {
  const end = (curve) => curve.x[curve.x.length - 1];
  const farthest = Math.max(...curves.map(end));
  const kept = curves.filter((curve) => end(curve) >= farthest / 2);
  const first = Math.max(...kept.map((curve) => curve.x[0]));
  const last = Math.min(...kept.map(end));
  let x = [...new Set(kept.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  x = x.filter((place) => place >= first && place <= last);
  if (!x.length) x = [last];
  if (x.length > MOST_POINTS) {
    x = Array.from({ length: MOST_POINTS }, (_, i) => first + ((last - first) * i) / (MOST_POINTS - 1));
    x[MOST_POINTS - 1] = last;
  }
  const y = [], low = [], high = [];
  for (const place of x) {
    const values = kept.map((curve) => interpolated(curve.x, curve.y, place));
    const found = estimate(values, how);
    y.push(found.value);
    low.push(found.low);
    high.push(found.high);
  }
  return { x, y, low, high, n: kept.length, out: curves.length - kept.length };
}

// How probable it is that a value of one side is higher than one of the other.
function improvement(better, worse) {
  let sum = 0;
  for (const a of better) for (const b of worse) sum += a > b ? 1 : a === b ? 0.5 : 0;
  return sum / (better.length * worse.length);
}
