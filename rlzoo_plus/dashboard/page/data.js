"use strict";
// Data of the pages: asked of the server, or, in exported pages, of scripts in data/.

const TOKEN = document.querySelector("meta[name=token]").content;
const LIVE = TOKEN !== "";
const waiting = new Map();
const loaded = new Map();
const MOST_IDS = 50;

// Called by the scripts of exported pages.
function receive(name, data) {
  waiting.get(name)(data);
}

function fromScript(name) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    waiting.set(name, resolve);
    script.src = `data/${encodeURIComponent(name)}.js`;
    script.onerror = () => reject(new Error(`data/${name}.js is missing`));
    document.head.append(script);
  });
}

async function fromServer(name) {
  const answer = await fetch(`data/${name}`);
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error || answer.statusText);
  return data;
}

// Returns a part of the data; it is asked for once, unless it is to be fresh.
function load(name, fresh = false) {
  if (!loaded.has(name) || (fresh && LIVE)) {
    const answer = LIVE ? fromServer(name) : fromScript(name.replaceAll("/", "-"));
    loaded.set(name, answer);
    answer.catch(() => loaded.delete(name));
  }
  return loaded.get(name);
}

// Numbers by run: of a metric over steps, or of a clock over steps.
const numbers = new Map();

async function loadNumbers(kind, name, runs) {
  const key = (run) => `${kind}|${name}|${run.id}|${run.steps}|${run.state}`;
  const missing = runs.filter((run) => !numbers.has(key(run)));
  if (LIVE) {
    for (let i = 0; i < missing.length; i += MOST_IDS) {
      const part = missing.slice(i, i + MOST_IDS);
      const ids = part.map((run) => run.id).join(",");
      const asked = `${kind === "series" ? "metric" : "axis"}=${encodeURIComponent(name)}`;
      const found = await fromServer(`${kind}?${asked}&ids=${ids}`);
      for (const run of part) numbers.set(key(run), found[run.id] || [[], []]);
    }
  } else {
    await Promise.all(missing.map(async (run) => {
      const details = await load(`run/${run.id}`);
      numbers.set(key(run), (details[kind] || {})[name] || [[], []]);
    }));
  }
  return new Map(runs.map((run) => [run.id, numbers.get(key(run))]));
}

// Curves of runs: positions on an axis and values.
async function loadCurves(runs, metric, axis) {
  const series = await loadNumbers("series", metric, runs);
  const clocks = axis === "steps" ? null : await loadNumbers("clock", axis, runs);
  const curves = [];
  for (const run of runs) {
    const [steps, values] = series.get(run.id);
    let x = steps, y = values;
    if (clocks) {
      const [known, places] = clocks.get(run.id);
      x = steps.map((step) => interpolated(known, places, step));
      y = values.filter((_, i) => x[i] !== null);
      x = x.filter((place) => place !== null);
    }
    if (x.length) curves.push({ run, x, y });
  }
  return curves;
}

async function writeNotes(run) {
  const notes = { star: run.star, tags: run.tags, note: run.note };
  const answer = await fetch(`notes/${run.id}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Token": TOKEN },
    body: JSON.stringify(notes),
  });
  if (!answer.ok) throw new Error((await answer.json()).error);
}

// The page and its state are in the part of the address behind #.
function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, id] = path.split("/");
  return { page: page || "home", id, query: new URLSearchParams(query || "") };
}

function setQuery(changes) {
  const { query } = route();
  for (const [key, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === false) query.delete(key);
    else query.set(key, value);
  }
  const path = location.hash.split("?")[0] || "#/";
  const text = query.toString();
  history.replaceState(null, "", text ? `${path}?${text}` : path);
}

function stored(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`rlzoo-plus ${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

function store(name, value) {
  try {
    localStorage.setItem(`rlzoo-plus ${name}`, JSON.stringify(value));
  } catch {
    // Some browsers keep nothing for files.
  }
}
