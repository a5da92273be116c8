"use strict";
// Drawing: curves with Plotly, small ones and parallel coordinates as SVG.

const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a7500", "#56b4e9", "#a6611a", "#7a5fb5"];
const ON_DARK = ["#4aa3df", "#f0833a", "#2fc795", "#e69ac4", "#c9b037", "#9ad3f5", "#d9965b", "#ab95e3"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
// These buttons alone: another one of Plotly's would send the chart to a service.
const CONFIG = {
  responsive: true, displaylogo: false, scrollZoom: false,
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
  toImageButtonOptions: { format: "svg", filename: "curves" },
};
const SVG = "http://www.w3.org/2000/svg";

function look(number) {
  const dash = DASHES[Math.floor(number / PALETTE.length) % DASHES.length];
  return { color: palette()[number % PALETTE.length], dash };
}

function palette() {
  return matchMedia("(prefers-color-scheme: dark)").matches ? ON_DARK : PALETTE;
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Plotly takes some tags in texts: names of runs are only text.
function clean(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

const zooms = new Map();
let plotly = null;

// Plotly is loaded with the first large chart.
function withPlotly() {
  plotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "plotly.min.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("plotly.min.js cannot be loaded"));
    document.head.append(script);
  });
  return plotly;
}

function number(value, digits = 4) {
  if (value === null || value === undefined) return "-";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  if (Math.abs(value) < 0.01) return value.toExponential(2).replace(/\.?0+e/, "e");
  return value.toLocaleString("en", { maximumSignificantDigits: digits });
}

function estimateText(found) {
  if (!found) return "-";
  if (found.low === null) return `${number(found.value)} (n=${found.n})`;
  return `${number(found.value)} [${number(found.low)}, ${number(found.high)}]`;
}

function rgba(hex, alpha) {
  const part = (at) => parseInt(hex.slice(at, at + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
}

function layoutOf(options) {
  const ink = color("ink"), grid = color("line");
  const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, size: 12, family: "system-ui, sans-serif" },
    margin: { l: 50, r: 12, t: 26, b: 40 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("faint"), activecolor: ink },
    hovermode: "closest",
    hoverlabel: { align: "left", namelength: -1 },
    showlegend: Boolean(options.legend),
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    xaxis: { ...axis, title: { text: clean(options.xLabel || ""), standoff: 6 }, type: options.logX ? "log" : "linear" },
    yaxis: { ...axis, type: options.logY ? "log" : "linear", exponentformat: "power" },
  };
}

// Traces of a group: the interval, its seeds' curves, and its mean.
function tracesOf(group, number_, options) {
  const { color: hue, dash } = look(number_);
  const curves = group.curves.map((c) => ({ ...c, y: smoothed(c.y, options.smoothing) }));
  const traces = [], same = { type: "scatter" };
  const isOne = curves.length === 1;
  const mean = isOne ? { x: curves[0].x, y: curves[0].y, low: [null], n: 1, out: 0 } : band(curves, options.how);
  if (options.how !== "seeds" && mean.low[0] !== null && mean.low[0] !== undefined) {
    traces.push({
      ...same, x: [...mean.x, ...[...mean.x].reverse()], y: [...mean.high, ...[...mean.low].reverse()],
      fill: "toself", fillcolor: rgba(hue, 0.18), line: { width: 0 }, hoverinfo: "skip", mode: "lines",
    });
  }
  if (!isOne) {
    const x = [], y = [], text = [], ids = [];
    for (const curve of curves) {
      x.push(...curve.x, null);
      y.push(...curve.y, null);
      text.push(...curve.y.map((v) => `${clean(curve.name)}<br>${number(v)}`), "");
      ids.push(...curve.y.map(() => curve.run.id), "");
    }
    const isShown = options.how === "seeds" || options.seeds === "always";
    traces.push({
      ...same, x, y, text, customdata: ids, mode: "lines", hoverinfo: isShown ? "text" : "skip",
      line: { width: 1, color: hue, dash }, opacity: isShown ? 0.55 : 0, meta: { seeds: number_ },
    });
  }
  const out = mean.out ? `, ${mean.out} cut short` : "";
  const isHidden = options.how === "seeds" && !isOne;
  traces.push({
    ...same, x: isHidden ? [null] : mean.x, y: isHidden ? [null] : mean.y, name: clean(group.name),
    mode: mean.x.length < 40 ? "lines+markers" : "lines", marker: { size: mean.x.length === 1 ? 9 : 4 },
    line: { width: 2.2, color: hue, dash }, hoverinfo: "text", meta: { group: number_ },
    customdata: mean.x.map(() => (isOne ? curves[0].run.id : "")),
    text: mean.y.map((v, i) => {
      const range = isOne || mean.low[i] === null ? "" : ` [${number(mean.low[i])}, ${number(mean.high[i])}]`;
      const size = isOne ? "" : `<br>${curves.length} runs${out}`;
      return `${clean(group.name)}${size}<br>${number(v)}${range}<br>${number(mean.x[i])} ${clean(options.xLabel)}`;
    }),
  });
  return traces;
}

async function lineChart(node, groups, options) {
  const traces = groups.flatMap((group, i) => tracesOf(group, group.look ?? i, options));
  const Plotly = await withPlotly();
  const layout = layoutOf(options), zoom = zooms.get(options.id);
  // A chart that is drawn again with newer values stays zoomed.
  if (zoom) Object.assign(layout.xaxis, { range: zoom.x }) && Object.assign(layout.yaxis, { range: zoom.y });
  await Plotly.newPlot(node, traces, layout, CONFIG);
  node.on("plotly_relayout", () => {
    const { xaxis, yaxis } = node.layout;
    if (xaxis.autorange && yaxis.autorange) zooms.delete(options.id);
    else zooms.set(options.id, { x: [...xaxis.range], y: [...yaxis.range] });
  });
  let shown = null;
  const show = (which) => {
    if (which === shown || options.seeds === "always" || options.how === "seeds") return;
    shown = which;
    const at = traces.flatMap((trace, i) => (trace.meta?.seeds === undefined ? [] : [i]));
    const opacity = at.map((i) => (traces[i].meta.seeds === which ? 0.5 : 0));
    if (at.length) Plotly.restyle(node, { opacity }, at);
  };
  node.on("plotly_hover", (event) => show(event.points[0].data.meta?.group));
  node.on("plotly_unhover", () => show(null));
  node.on("plotly_click", (event) => {
    const id = event.points[0].customdata;
    if (id) location.hash = `#/run/${id}`;
  });
}

async function scatterChart(node, traces, options) {
  const Plotly = await withPlotly();
  const layout = layoutOf(options);
  layout.yaxis.title = { text: clean(options.yLabel || "") };
  await Plotly.newPlot(node, traces, layout, CONFIG);
  node.on("plotly_click", (event) => options.onClick?.(event.points[0].customdata));
}

function svg(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function titled(text) {
  const title = document.createElementNS(SVG, "title");
  title.textContent = text;
  return title;
}

// A small chart of some curves: [steps, values] each.
function sparkline(curves, label) {
  const known = curves.map(([x, y]) => x.map((v, i) => [v, y[i]]).filter(([, v]) => v !== null)).filter((c) => c.length);
  const width = 220, height = 48;
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "spark", role: "img", "aria-label": label, preserveAspectRatio: "none" });
  if (!known.length) return node;
  const all = known.flat();
  const [left, right] = [0, Math.max(...all.map(([x]) => x), 1)];
  const low = Math.min(...all.map(([, y]) => y)), high = Math.max(...all.map(([, y]) => y));
  const px = (x) => 3 + ((x - left) / (right - left)) * (width - 6);
  const py = (y) => height - 4 - (high > low ? (y - low) / (high - low) : 0.5) * (height - 8);
  known.forEach((curve, i) => {
    const stroke = look(i).color;
    if (curve.length === 1) node.append(svg("circle", { cx: px(curve[0][0]), cy: py(curve[0][1]), r: 3, fill: stroke }));
    const points = curve.map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`).join(" ");
    node.append(svg("polyline", { points, fill: "none", stroke, "stroke-width": 1.8, "vector-effect": "non-scaling-stroke" }));
  });
  return node;
}

// Parallel coordinates: an axis for each key, a line for each row; drag on an axis to choose.
function parallel(keys, rows, options) {
  const width = Math.max(560, keys.length * 120), height = 260, top = 34, bottom = 22, side = 60;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "parallel", role: "img", "aria-label": "parallel coordinates" });
  root.style.minWidth = `${0.8 * width}px`;
  const at = (i) => side + (i * (width - 2 * side)) / Math.max(keys.length - 1, 1);
  const axes = keys.map((key) => axisOf(rows.map((row) => row.values[key.id]), top, height - bottom));
  const scores = rows.map((row) => row.score).filter((score) => score !== null);
  const [worst, best] = [Math.min(...scores), Math.max(...scores)];
  const brushes = new Map();
  const lines = [...rows].sort((a, b) => (a.score ?? -Infinity) - (b.score ?? -Infinity)).map((row) => {
    const places = keys.map((key, i) => axes[i].place(row.values[key.id]));
    const share = row.score === null ? 0 : best > worst ? (row.score - worst) / (best - worst) : 1;
    const points = places.map((y, i) => `${at(i)},${y.toFixed(1)}`).join(" ");
    const line = svg("polyline", { points, fill: "none", stroke: `hsl(${220 - 190 * share} 75% 48%)`, "stroke-width": 1.3 + share, class: "row" }, titled(row.title));
    line.addEventListener("click", () => options.onClick(row));
    root.append(line);
    return { line, places };
  });
  const choose = () => {
    for (const { line, places } of lines) {
      const isIn = [...brushes].every(([i, [low, high]]) => places[i] >= low && places[i] <= high);
      line.classList.toggle("out", !isIn);
    }
  };
  keys.forEach((key, i) => {
    root.append(svg("line", { x1: at(i), x2: at(i), y1: top, y2: height - bottom, class: "axis" }));
    const name = svg("text", { x: at(i), y: 14, class: "name" });
    name.textContent = key.name.length > 18 ? `…${key.name.slice(-17)}` : key.name;
    name.append(titled(key.name));
    root.append(name);
    for (const [text, y] of axes[i].ticks) {
      const tick = svg("text", { x: at(i) + 4, y: y + 3, class: "tick" });
      tick.textContent = text.length > 14 ? `${text.slice(0, 13)}…` : text;
      root.append(tick);
    }
    brush(root, at(i), top, height - bottom, (range) => {
      if (range) brushes.set(i, range);
      else brushes.delete(i);
      choose();
    });
  });
  return root;
}

function axisOf(values, top, bottom) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const isNumeric = known.length && known.every((value) => typeof value === "number");
  if (!isNumeric) {
    const names = [...new Set(known.map(String))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const named = (name) => (/^\d*\.?\d+$/.test(name) ? number(Number(name), 3) : name);
    const place = (value) => {
      const n = names.indexOf(String(value));
      return n < 0 ? bottom : bottom - (names.length > 1 ? n / (names.length - 1) : 0.5) * (bottom - top);
    };
    const every = Math.ceil(names.length / 8);
    return { place, ticks: names.filter((_, i) => i % every === 0).map((name) => [named(name), place(name)]) };
  }
  const low = Math.min(...known), high = Math.max(...known);
  const isLog = low > 0 && high / low > 9.9;
  const scale = (value) => (isLog ? Math.log(value) : value);
  const share = (value) => (high > low ? (scale(value) - scale(low)) / (scale(high) - scale(low)) : 0.5);
  const place = (value) => (typeof value === "number" ? bottom - share(value) * (bottom - top) : bottom);
  const half = isLog ? Math.sqrt(low * high) : (low + high) / 2;
  const ticks = (high > low ? [low, half, high] : [low]).map((value) => [number(value, 3), place(value)]);
  return { place, ticks };
}

function brush(root, x, top, bottom, onChange) {
  const mark = svg("rect", { x: x - 6, width: 12, y: top, height: 0, class: "brush" });
  const catcher = svg("rect", { x: x - 12, width: 24, y: top - 4, height: bottom - top + 8, class: "catcher" }, titled("drag to choose, click to clear"));
  const placeOf = (event) => {
    const box = root.getBoundingClientRect();
    const y = ((event.clientY - box.top) / box.height) * root.viewBox.baseVal.height;
    return Math.max(top - 1, Math.min(bottom + 1, y));
  };
  let start = null;
  const draw = (event) => {
    const here = placeOf(event), low = Math.min(start, here), high = Math.max(start, here);
    const isRange = high - low > 3;
    mark.setAttribute("y", low);
    mark.setAttribute("height", isRange ? high - low : 0);
    onChange(isRange ? [low, high] : null);
  };
  catcher.addEventListener("pointerdown", (event) => {
    start = placeOf(event);
    catcher.setPointerCapture(event.pointerId);
  });
  catcher.addEventListener("pointermove", (event) => start !== null && draw(event));
  catcher.addEventListener("pointerup", (event) => {
    draw(event);
    start = null;
  });
  root.append(mark, catcher);
}
