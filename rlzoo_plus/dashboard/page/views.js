"use strict";
// The first page, and the page of runs: groups, curves and the table.

const AXES = [["steps", "environment steps"], ["hours", "hours of training"], ["episodes", "training episodes"]];
const HOW = [["iqm", "IQM, 95 % interval"], ["mean", "mean, 95 % interval"], ["seeds", "single runs"]];
const MOST_GROUPS = 10;
const MOST_CURVES = 400;

// All runs with what pages need of them; `all` is what the server told.
function prepared(all, before) {
  // A page that is shown goes on with the runs that it has.
  const known = new Map((before?.runs || []).map((run) => [run.id, run]));
  all.runs = all.runs.map((run) => Object.assign(known.get(run.id) || {}, run));
  for (const run of all.runs) {
    run.values = all.variants[run.variant] || {};
    run.variantName = run.name;
    if (run.seed !== null) run.name += `, seed ${run.seed}`;
  }
  return all;
}

function byKey(runs, key) {
  const groups = new Map();
  for (const run of runs) {
    const name = typeof key === "function" ? key(run) : run[key];
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(run);
  }
  return groups;
}

function scoreOf(runs, which = "final") {
  const done = runs.filter((run) => run.state === "finished");
  return estimate((done.length ? done : runs).map((run) => run[which]), "iqm");
}

// Variants of runs, the best first.
function ranked(runs) {
  const groups = [...byKey(runs, "variant").values()].map((members) => ({ members, score: scoreOf(members) }));
  return groups.sort((a, b) => (b.score?.value ?? -Infinity) - (a.score?.value ?? -Infinity));
}

function card(link, title, ...children) {
  return el("article", { class: "card" }, el("h3", {}, el("a", { href: link }, title)), ...children);
}

function counts(runs) {
  const groups = [...byKey(runs, "state")].map(([state, members]) => el("span", { class: `state ${state}` }, `${members.length} ${state}`));
  return el("p", { class: "counts" }, groups);
}

function home(all) {
  const page = el("div");
  const { runs } = all;
  if (!runs.length) {
    page.append(el("h1", {}, "No runs yet"), el("p", {}, "Start one: "), copyable("rlzoo-plus train algo=ppo env=cartpole_bullet"));
    return page;
  }
  const running = runs.filter((run) => run.state === "running");
  const of = (title, cards) => cards.length && page.append(section(title, el("div", { class: "cards" }, cards)));
  of(`Running now (${running.length})`, running.slice(0, 8).map((run) => card(`#/run/${run.id}`, `${run.name} on ${run.env}`,
    el("progress", { value: run.steps || 0, max: run.of || 1, "aria-label": "steps" }),
    el("p", { class: "faint" }, `${number(run.steps)} of ${number(run.of)} steps${run.rate ? `, ${number(run.rate)} steps/s` : ""}${run.left ? `, ${run.left} left` : ""}`),
    sparkline([run.spark], "return"))));
  const sweeps = [...byKey(runs.filter((run) => run.kind !== "folder"), "folder")].slice(0, 6);
  of("Newest sweeps and studies", sweeps.map(([folder, members]) => {
    const best = ranked(members);
    const study = all.studies.find((each) => each.name === folder);
    const link = study ? `#/study/${study.id}` : `#/runs?folder=${encodeURIComponent(folder)}`;
    return card(link, folder, counts(members),
      el("p", {}, "best: ", best[0].members[0].variantName, " ", el("b", {}, estimateText(best[0].score))),
      sparkline(best.slice(0, 5).map((each) => each.members[0].spark), "returns of the best five variants"));
  }));
  const envs = [...byKey(runs.filter((run) => run.final !== null), "env")];
  of("Best by task", envs.slice(0, 12).map(([env, members]) => {
    const best = ranked(members)[0];
    return card(`#/runs?env=${encodeURIComponent(env)}`, env,
      el("p", {}, best.members[0].variantName, " ", el("b", {}, estimateText(best.score))),
      sparkline(best.members.slice(0, 8).map((run) => run.spark), "returns of its seeds"));
  }));
  const starred = runs.filter((run) => run.star);
  of("Starred", starred.slice(0, 8).map((run) => card(`#/run/${run.id}`, `${run.name} on ${run.env}`, badge(run), sparkline([run.spark], "return"))));
  const troubled = runs.filter((run) => ["failed", "died", "damaged"].includes(run.state)).slice(0, 6);
  if (troubled.length) {
    page.append(section("Failed or damaged", el("ul", { class: "reasons" }, troubled.map((run) => el("li", {}, badge(run), " ", runLink(run), ` on ${run.env}: `, run.reason)))));
  }
  const columns = runColumns(all, []).filter((column) => !["pick", "tags"].includes(column.id));
  page.append(section("Newest runs", table(columns, runs.slice(0, 10), { label: "newest runs" }), el("p", {}, el("a", { href: "#/runs" }, `All ${runs.length} runs`))));
  return page;
}

function differing(runs, keys) {
  return keys.filter((key) => new Set(runs.map((run) => String(run.values[key] ?? ""))).size > 1);
}

function shortKey(key) {
  return key.replace("algo.hyperparams.", "");
}

function runColumns(all, keys, onPick = null) {
  const text = (id, name, of = (row) => row[id]) => ({ id, name, value: of, cell: (row) => String(of(row) ?? "-") });
  const count = (id, name, of = (row) => row[id]) => ({ id, name, value: of, isRight: true });
  return [
    ...(onPick ? [{ id: "pick", name: "", value: (row) => row.picked, cell: (row) => onPick(row) }] : []),
    { id: "star", name: "★", title: "star", value: (row) => !row.star, cell: (row) => starButton(row) },
    { id: "name", name: "run", value: (row) => row.name, cell: (row) => runLink(row) },
    { id: "state", name: "state", value: (row) => row.state, cell: badge },
    text("env", "env"),
    { ...text("seed", "seed"), isRight: true }, count("steps", "steps"), count("best", "best"), count("final", "final"),
    { id: "time", name: "time", isRight: true, value: (row) => row.time, cell: (row) => duration(row.time) },
    { id: "started", name: "started", value: (row) => row.started, cell: (row) => when(row.started) },
    ...keys.map((key) => ({ ...count(key, shortKey(key), (row) => row.values[key]), title: key })),
    { id: "tags", name: "tags", value: (row) => row.tags.join(), cell: (row) => el("span", {}, row.tags.map((tag) => el("span", { class: "tag" }, tag))) },
    { id: "reason", name: "reason", value: (row) => row.reason, cell: (row) => el("span", { class: "reason", title: row.reason }, row.reason) },
  ].filter((column) => column.id !== "reason" || all.runs.some((run) => run.reason));
}

// The runs that the state in the address lets through.
function filtered(runs, query) {
  const text = (query.get("q") || "").trim().toLowerCase();
  return runs.filter((run) => {
    for (const key of ["state", "algo", "env", "folder"]) {
      if (query.get(key) && run[key] !== query.get(key)) return false;
    }
    if (query.get("tag") && !run.tags.includes(query.get("tag"))) return false;
    if (query.get("star") && !run.star) return false;
    return !text || text.split(/\s+/).every((word) => matches(run, word));
  });
}

// A word is part of a text of the run, or key=value, key<value or key>value of a setting.
function matches(run, word) {
  const parts = /^([\w.]+)(=|<|>)(.+)$/.exec(word);
  if (!parts) return `${run.name} ${run.path} ${run.env} ${run.reason} ${run.note} ${run.tags.join(" ")}`.toLowerCase().includes(word);
  const [, key, sign, wanted] = parts;
  const names = Object.keys(run.values).filter((name) => name.toLowerCase() === key || name.toLowerCase().endsWith(`.${key}`));
  const values = [...names.map((name) => run.values[name]), ...(key in run ? [run[key]] : [])];
  return values.some((value) => {
    if (sign === "=") return String(value).toLowerCase() === wanted || (value !== null && Number(value) === Number(wanted));
    return value !== null && (sign === "<" ? Number(value) < Number(wanted) : Number(value) > Number(wanted));
  });
}

// Groups of runs, the best first, each with the look of its curve.
function grouped(runs, key) {
  const values = { variant: (run) => `${run.variant} ${run.env}`, run: (run) => run.id };
  const names = { variant: (run) => run.variantName, run: (run) => run.name };
  const isPlain = ["algo", "env", "folder", "state", "seed"].includes(key);
  const nameOf = names[key] || ((run) => (isPlain ? String(run[key]) : `${shortKey(key)}=${run.values[key] ?? "-"}`));
  const groups = [...byKey(runs, values[key] || nameOf).values()].map((members) => ({ name: nameOf(members[0]), members, score: scoreOf(members) }));
  // What does not tell them apart is left out of names.
  for (const more of key in names ? ["env", "folder", "variant"] : []) {
    for (const same of byKey(groups, "name").values()) {
      if (same.length > 1) for (const group of same) group.name += ` (${group.members[0][more]})`;
    }
  }
  groups.sort((a, b) => (b.score?.value ?? -Infinity) - (a.score?.value ?? -Infinity));
  groups.forEach((group, i) => (group.look = i));
  return groups;
}

function chartOptions(query) {
  const axis = query.get("x") || "steps";
  return {
    axis, isAsked: Boolean(query.get("metrics")), how: query.get("how") || "iqm", seeds: query.get("seeds") || "hover",
    smoothing: Number(query.get("smooth") || 0), logX: Boolean(query.get("logx")), logY: Boolean(query.get("logy")),
    xLabel: AXES.find(([name]) => name === axis)?.[1] || axis,
  };
}

// How many runs of each group are drawn, the newest first.
function mostOf(groups) {
  return Math.max(1, Math.floor(MOST_CURVES / Math.max(groups.length, 1)));
}

function metricChart(metric, groups, options) {
  return chartBox(metric, async (plot) => {
    const most = mostOf(groups);
    const shown = groups.map((group) => ({ ...group, members: group.members.slice(0, most) }));
    const curves = await loadCurves(shown.flatMap((group) => group.members), metric, options.axis);
    const drawn = shown.map((group) => {
      const ids = new Set(group.members.map((run) => run.id));
      return { name: group.name, look: group.look, curves: curves.filter((c) => ids.has(c.run.id)).map((c) => ({ ...c, name: c.run.name })) };
    }).filter((group) => group.curves.length);
    // Of the metrics that nobody asked for, one without values is not shown.
    plot.parentNode.hidden = !drawn.length && !options.isAsked && metric !== "mean_return";
    if (!drawn.length) return options.axis === "steps" ? "No run has values of it." : `No run says where its steps lie in ${options.axis}.`;
    const id = [metric, options.axis, options.logX, options.logY].join("|");
    await lineChart(plot, drawn, { ...options, id });
    return null;
  });
}

function metricControls(metrics, chosen, query, update) {
  const set = (key) => (value) => {
    setQuery({ [key]: value });
    update();
  };
  const smoothing = el("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: query.get("smooth") || 0, "aria-label": "smoothing" });
  smoothing.addEventListener("change", () => set("smooth")(smoothing.value === "0" ? "" : smoothing.value));
  return [
    picker(`Metrics (${chosen.length})`, metrics, chosen, (names) => set("metrics")(names.join(","))),
    select("over seeds", query.get("how") || "iqm", HOW, set("how")),
    select("seeds' curves", query.get("seeds") || "hover", [["hover", "on hover"], ["always", "always"]], set("seeds")),
    select("x axis", query.get("x") || "steps", AXES, set("x")),
    el("label", { class: "control" }, el("span", {}, "smoothing"), smoothing),
    check("log x", Boolean(query.get("logx")), (on) => set("logx")(on ? "1" : "")),
    check("log y", Boolean(query.get("logy")), (on) => set("logy")(on ? "1" : "")),
  ];
}

function chosenMetrics(query, metrics) {
  const asked = (query.get("metrics") || "").split(",").filter(Boolean);
  return asked.length ? asked : metrics.filter((name) => ["mean_return", "success_rate"].includes(name));
}

async function runsPage(all) {
  const metrics = await load("metrics", true);
  const { query } = route();
  const hidden = new Set(), names_ = el("div"), shown = el("div"), charts = el("div", { class: "charts" }), rows = el("div"), panel = el("div");
  const update = () => {
    const { query: now } = route();
    all = everything;
    const runs = filtered(all.runs, now);
    const picked = new Set((now.get("sel") || "").split(",").filter(Boolean));
    const drawn = picked.size ? runs.filter((run) => picked.has(run.id)) : runs;
    const groups = grouped(drawn, now.get("group") || "variant");
    const names = chosenMetrics(now, metrics);
    const best = groups.slice(0, MOST_GROUPS), visible = best.filter((group) => !hidden.has(group.name));
    names_.replaceChildren(legend(best, hidden, update));
    charts.replaceChildren(...names.map((name) => metricChart(name, visible, chartOptions(now))));
    const most = mostOf(visible);
    const cut = (groups.length > MOST_GROUPS ? ` Curves: the best ${MOST_GROUPS} of ${groups.length} groups.` : "")
      + (visible.some((group) => group.members.length > most) ? ` Curves are over at most ${most} runs of a group, the newest.` : "");
    shown.replaceChildren(el("p", { class: "faint" }, `${runs.length} of ${all.runs.length} runs${picked.size ? `, ${picked.size} selected` : ""}.${cut}`));
    rows.replaceChildren(now.get("rows") === "groups" ? groupTable(groups, now, update) : runTable(all, runs, picked, now, update));
    panel.replaceChildren(...sweepPanel(all, runs, now));
    const head = document.querySelector(".picker summary");
    if (head) head.textContent = `Metrics (${names.length})`;
    say("");
  };
  const page = el("div", {}, el("h1", {}, "Runs"), controls(all, query, update),
    el("div", { class: "controls" }, metricControls(metrics, chosenMetrics(query, metrics), query, update)), shown, names_, charts, panel, rows);
  page.update = onlyIfNew(() => filtered(everything.runs, route().query), update);
  update();
  return page;
}

function controls(all, query, update) {
  const set = (key) => (value) => {
    setQuery({ [key]: value, ...(key === "sel" ? {} : { sel: "" }) });
    update();
  };
  const names = (key) => [["", "all"], ...[...new Set(all.runs.map((run) => String(run[key])))].sort().map((name) => [name, name])];
  const search = el("input", { type: "search", id: "search", value: query.get("q") || "", placeholder: "text, or lr=0.001, final>100", "aria-label": "search" });
  let timer = 0;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => set("q")(search.value), 200);
  });
  const tags = [...new Set(all.runs.flatMap((run) => run.tags))].sort();
  const keys = differing(all.runs, all.keys);
  const groups = [["variant", "variant"], ["algo", "algorithm"], ["env", "environment"], ["folder", "sweep or folder"], ["seed", "seed"], ["run", "single run"], ...keys.map((key) => [key, shortKey(key)])];
  return el("div", { class: "controls" },
    el("label", { class: "control grow" }, el("span", {}, "search"), search),
    ...["state", "algo", "env", "folder"].map((key) => select(key, query.get(key) || "", names(key), set(key))),
    tags.length ? select("tag", query.get("tag") || "", [["", "all"], ...tags.map((tag) => [tag, tag])], set("tag")) : null,
    check("starred", Boolean(query.get("star")), (on) => set("star")(on ? "1" : "")),
    select("group by", query.get("group") || "variant", groups, set("group")),
    select("table of", query.get("rows") || "runs", [["runs", "runs"], ["groups", "groups"]], set("rows")),
    savedViews());
}

function savedViews() {
  const views = stored("views", {});
  const box = el("select", { "aria-label": "saved views" }, el("option", { value: "" }, "saved views"),
    Object.keys(views).sort().map((name) => el("option", { value: name }, name)));
  box.addEventListener("change", () => {
    if (views[box.value]) location.hash = views[box.value];
  });
  const name = el("input", { placeholder: "name of this view", "aria-label": "name of this view", size: 14 });
  const keep = el("button", {}, "Save view");
  keep.addEventListener("click", () => {
    if (!name.value.trim()) return say("Name the view first", true);
    store("views", { ...stored("views", {}), [name.value.trim()]: location.hash });
    box.append(el("option", { value: name.value.trim() }, name.value.trim()));
    views[name.value.trim()] = location.hash;
    say(`Saved the view ${name.value.trim()}`);
  });
  const drop = el("button", { "aria-label": "delete the chosen view" }, "Delete");
  drop.addEventListener("click", () => {
    delete views[box.value];
    store("views", views);
    box.selectedOptions[0]?.value && box.selectedOptions[0].remove();
  });
  return el("span", { class: "control views" }, box, name, keep, drop);
}

function runTable(all, runs, picked, query, update) {
  const keys = differing(runs, all.keys).slice(0, 12);
  const pick = (run) => {
    const box = el("input", { type: "checkbox", checked: picked.has(run.id), "aria-label": `select ${run.name}` });
    box.addEventListener("change", () => {
      box.checked ? picked.add(run.id) : picked.delete(run.id);
      setQuery({ sel: [...picked].join(",") });
      chosenLink();
      update();
      document.querySelector(`tr[data-id="${run.id}"] input`)?.focus();
    });
    return box;
  };
  const onSort = (sort) => {
    setQuery({ sort });
    update();
  };
  return section("Table", table(runColumns(all, keys, pick), runs, { sort: query.get("sort") || "", onSort, label: "runs" }));
}

function groupTable(groups, query, update) {
  const onSort = (sort) => {
    setQuery({ sort });
    update();
  };
  const columns = [
    { id: "name", name: "group", value: (row) => row.name, cell: (row) => el("details", {}, el("summary", {}, row.name), el("ul", {}, row.members.map((run) => el("li", {}, badge(run), " ", runLink(run), ` ${number(run.final)}`)))) },
    { id: "n", name: "runs", isRight: true, value: (row) => row.members.length },
    { id: "final", name: "final, IQM [95 %]", isRight: true, value: (row) => row.score?.value ?? null, cell: (row) => estimateText(row.score) },
    { id: "best", name: "best, IQM [95 %]", isRight: true, value: (row) => scoreOf(row.members, "best")?.value ?? null, cell: (row) => estimateText(scoreOf(row.members, "best")) },
    { id: "compare", name: "", value: () => "", cell: (row) => el("a", { href: `#/compare?ids=${row.members.map((run) => run.id).slice(0, 20).join(",")}&group=run` }, "seeds") },
  ];
  const top = groups.slice(0, 6).flatMap((group) => group.members.slice(0, 10)).map((run) => run.id).join(",");
  return section("Groups", el("p", {}, el("a", { href: `#/compare?ids=${top}` }, "Compare the first six")),
    table(columns, groups, { sort: query.get("sort") || "", onSort, label: "groups" }));
}

// Parallel coordinates and importance, where runs of one sweep are shown.
function sweepPanel(all, runs, query) {
  const parents = new Set(runs.map((run) => run.parent));
  const keys = differing(runs, all.keys).slice(0, 10);
  if (!keys.length || runs.length < 3) return [];
  const rows = runs.slice(0, 300).map((run) => ({ id: run.id, title: `${run.name}: ${number(run.final)}`, score: run.final, values: { ...run.values, "~final": run.final } }));
  const axes = [...keys.map((key) => ({ id: key, name: shortKey(key) })), { id: "~final", name: "final" }];
  const draw = parallel(axes, rows, { onClick: (row) => (location.hash = `#/run/${row.id}`) });
  const parts = [section("Settings and outcome", el("div", { class: "wide" }, draw))];
  if (parents.size === 1 && query.get("folder") && keys.length > 1) {
    const box = el("div", {}, "...");
    load(`sweep/${runs[0].parent}`).then((data) => box.replaceChildren(data.problem ? el("p", { class: "faint" }, data.problem) : bars(data.importance)), (error) => box.replaceChildren(error.message));
    parts.push(section("Importance for the final return", box));
  }
  return parts;
}
