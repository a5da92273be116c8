"use strict";
// The pages of one run, of several side by side, and of a study.

const MOST_COMPARED = 40;

async function runPage(all, id) {
  const run = all.runs.find((each) => each.id === id);
  if (!run) return el("p", { class: "error" }, "There is no such run here.");
  const details = await load(`run/${id}`, true);
  const { query } = route();
  const charts = el("div");
  const update = () => {
    const { query: now } = route();
    const options = chartOptions(now);
    const groups = [{ name: run.name, look: 0, members: [run] }];
    const asked = (now.get("metrics") || "").split(",").filter(Boolean);
    if (asked.length) {
      charts.replaceChildren(el("div", { class: "charts" }, asked.map((name) => metricChart(name, groups, options))));
      return;
    }
    const sections = byKey(details.metrics.map((name) => ({ name, part: name.includes("/") ? name.split("/")[0] : "evaluation" })), "part");
    charts.replaceChildren(...[...sections].map(([part, names], i) => el("details", { open: i === 0 },
      el("summary", {}, `${part} (${names.length})`), el("div", { class: "charts" }, names.map(({ name }) => metricChart(name, groups, options))))));
  };
  update();
  const seeds = all.runs.filter((each) => each.variant === run.variant && each.env === run.env);
  const facts = { environment: run.env, steps: `${number(run.steps, 9)} of ${number(run.of, 9)}`, "best return": number(run.best), "final return": number(run.final), time: duration(run.time), started: when(run.started), ...details.facts };
  const page = el("div", {},
    el("h1", {}, run.name, " ", badge(run)), el("p", { class: "faint" }, run.path),
    run.reason ? el("p", { class: "error" }, run.reason) : null,
    notesEditor(run),
    el("p", {}, el("a", { href: `#/runs?folder=${encodeURIComponent(run.folder)}` }, `Runs in ${run.folder}`),
      seeds.length > 1 ? [" · ", el("a", { href: `#/compare?ids=${seeds.map((each) => each.id).slice(0, 20).join(",")}&group=run` }, `Its ${seeds.length} seeds`)] : null),
    el("div", { class: "controls" }, metricControls(details.metrics, chosenMetrics(query, []), query, update).filter((_, i) => i !== 1 && i !== 2)),
    el("div", { class: "split" }, charts, videoPart(run, details)),
    section("Facts", pairs(facts)),
    section("Settings", settingsTable(details.settings)),
    section("Commands", details.command ? el("pre", {}, details.command) : null, ...details.commands.map(copyable)));
  page.update = onlyIfNew(() => run, update);
  return page;
}

function pairs(facts) {
  return el("dl", {}, Object.entries(facts).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]));
}

function videoPart(run, details) {
  if (!details.videos.length) {
    const steps = details.checkpoints;
    const which = steps.length ? ` --which ${steps[steps.length - 1]}` : "";
    return el("aside", {}, el("h2", {}, "Video"), el("p", { class: "faint" }, "There is none yet. Record one:"), copyable(`rlzoo-plus record ${details.facts.directory}${which}`));
  }
  const video = el("video", { controls: true, loop: true, muted: true, playsinline: true, preload: "metadata" });
  // The attribute counts only in HTML that is parsed.
  video.muted = true;
  const show = (name) => (video.src = `videos/${run.id}/${encodeURIComponent(name)}`);
  show(details.videos[0]);
  const checkpoints = details.checkpoints.length ? el("p", { class: "faint" }, `Checkpoints: ${details.checkpoints.map((step) => number(step, 9)).join(", ")}`) : null;
  return el("aside", {}, el("h2", {}, "Video"), select("policy", details.videos[0], details.videos.map((name) => [name, name.replace(/\.mp4$/, "")]), show), video, checkpoints);
}

function settingsTable(settings) {
  const rows = Object.entries(settings).map(([key, value]) => ({ id: key, key, value }));
  const box = el("div");
  const filter = el("input", { type: "search", placeholder: "filter settings", "aria-label": "filter settings" });
  const columns = [{ id: "", name: "setting", value: (row) => row.key, cell: (row) => row.key }, { id: "", name: "value", value: (row) => row.value, cell: (row) => row.value }];
  const fill = () => box.replaceChildren(table(columns, rows.filter((row) => `${row.key}=${row.value}`.toLowerCase().includes(filter.value.toLowerCase())), { label: "settings", limit: 60 }));
  filter.addEventListener("input", fill);
  fill();
  return el("div", {}, filter, box);
}

function nothingToCompare(all) {
  const sweeps = [...byKey(all.runs.filter((run) => run.kind === "sweep"), "folder")].slice(0, 6);
  const linkOf = ([folder, members]) => el("li", {}, el("a", { href: `#/compare?ids=${members.slice(0, MOST_COMPARED).map((run) => run.id).join(",")}` }, folder), `, ${members.length} runs`);
  return el("div", {}, el("h1", {}, "Compare"), el("p", {}, "Select two or more runs in the ", el("a", { href: "#/runs" }, "table"), ", then come back."),
    sweeps.length ? section("Or compare the variants of a sweep", el("ul", {}, sweeps.map(linkOf))) : null);
}

async function comparePage(all) {
  const metrics = await load("metrics", true);
  const { query } = route();
  const ids = (query.get("ids") || query.get("sel") || "").split(",").filter(Boolean);
  const runs = ids.map((id) => all.runs.find((run) => run.id === id)).filter(Boolean);
  if (runs.length < 2) return nothingToCompare(all);
  const hidden = new Set(), names_ = el("div"), charts = el("div", { class: "charts" }), scores = el("div");
  const update = () => {
    const { query: now } = route();
    const groups = grouped(runs, now.get("group") || "variant");
    const visible = groups.filter((group) => !hidden.has(group.name));
    names_.replaceChildren(legend(groups, hidden, update));
    charts.replaceChildren(...chosenMetrics(now, metrics).map((name) => metricChart(name, visible, chartOptions(now))));
    scores.replaceChildren(scoreTable(groups));
  };
  const keys = [["variant", "variant"], ["run", "single run"], ["algo", "algorithm"], ["env", "environment"], ...differing(runs, all.keys).map((key) => [key, shortKey(key)])];
  const page = el("div", {}, el("h1", {}, `Compare ${runs.length} runs`),
    el("div", { class: "controls" }, select("group by", query.get("group") || "variant", keys, (value) => {
      setQuery({ group: value });
      update();
    }), metricControls(metrics, chosenMetrics(query, metrics), query, update)),
    names_, charts, section("Final return", scores), section("Settings that differ", settingsThatDiffer(all, runs)), section("Videos", await videosOf(runs.slice(0, 6))));
  page.update = onlyIfNew(() => runs, update);
  update();
  return page;
}

function scoreTable(groups) {
  const values = (group) => group.members.map((run) => run.final).filter((value) => value !== null);
  const first = groups[0];
  const better = (group) => (group === first || !values(group).length ? null : improvement(values(first), values(group)));
  const columns = [
    { id: "", name: "group", value: (row) => row.name, cell: (row) => row.name },
    { id: "", name: "runs", isRight: true, value: (row) => values(row).length },
    { id: "", name: "IQM [95 %]", isRight: true, value: () => "", cell: (row) => estimateText(estimate(values(row), "iqm")) },
    { id: "", name: "mean [95 %]", isRight: true, value: () => "", cell: (row) => estimateText(estimate(values(row), "mean")) },
    { id: "", name: "difference to the first", isRight: true, value: (row) => (row === first || !row.score || !first.score ? null : row.score.value - first.score.value) },
    { id: "", name: "P(first is higher)", isRight: true, value: better },
  ];
  const few = groups.some((group) => values(group).length < ENOUGH_SEEDS);
  return el("div", {}, table(columns, groups, { label: "scores" }),
    few ? el("p", { class: "note" }, `Groups with fewer than ${ENOUGH_SEEDS} runs have no interval. \`rlzoo-plus compare\` tests differences.`) : null);
}

function settingsThatDiffer(all, runs) {
  const variants = [...byKey(runs, "variant").values()].map((members) => members[0]).slice(0, 12);
  const keys = differing(variants, all.keys);
  if (!keys.length) return el("p", { class: "faint" }, "They differ in nothing but their seeds.");
  const columns = [{ id: "", name: "setting", value: (key) => key.key, cell: (key) => shortKey(key.key) },
    ...variants.map((run) => ({ id: "", name: run.variantName, value: (key) => run.values[key.key] ?? "-" }))];
  return table(columns, keys.map((key) => ({ key })), { label: "settings that differ" });
}

async function videosOf(runs) {
  const found = await Promise.all(runs.map(async (run) => [run, await load(`run/${run.id}`).catch(() => null)]));
  const shown = found.filter(([, details]) => details?.videos.length);
  if (!shown.length) return el("p", { class: "faint" }, "None of the first six runs has a video.");
  return el("div", { class: "cards" }, shown.map(([run, details]) => el("article", { class: "card" }, el("h3", {}, runLink(run)), videoPart(run, details).querySelector("video"))));
}

async function studyPage(all, id) {
  const study = await load(`study/${id}`, true);
  const page = el("div", {}, el("h1", {}, study.name));
  if (study.problem) page.append(el("p", { class: "error" }, study.problem));
  const done = study.trials.filter((trial) => trial.values.length);
  const [objective] = study.objectives;
  page.append(el("p", { class: "faint" }, `${done.length} of ${study.wanted ?? "?"} trials are done; ${(study.directions || []).map((how, i) => `${how} ${study.objectives[i]}`).join(", ")}`));
  if (!study.trials.length) return page;
  if (done.length < 30) page.append(el("p", { class: "note" }, "Fewer than 30 trials are done: importance and the best values are rough."));
  const open = (number_) => {
    const trial = study.trials.find((each) => each.number === number_);
    if (trial?.runs.length) location.hash = `#/run/${trial.runs[0]}`;
  };
  page.append(el("div", { class: "charts" },
    chartBox(`History of ${objective}`, (plot) => history_(plot, study, done, open)),
    chartBox("Learning curves of trials", (plot) => rungs(plot, study))));
  const axes = [...study.keys.map((key) => ({ id: key, name: shortKey(key) })), { id: "~value", name: objective }];
  const sign = study.directions[0] === "minimize" ? -1 : 1;
  const rows = done.map((trial) => ({ id: trial.number, title: `trial ${trial.number}: ${number(trial.values[0])}`, score: sign * trial.values[0], values: { ...trial.params, "~value": trial.values[0] } }));
  page.append(section("Values and outcome", el("div", { class: "wide" }, parallel(axes, rows, { onClick: (row) => open(row.id) }))));
  page.append(section("Importance", bars(study.importance)));
  const columns = [
    { id: "number", name: "trial", isRight: true, value: (row) => row.number, cell: (row) => (row.runs.length ? el("a", { href: `#/run/${row.runs[0]}` }, String(row.number)) : String(row.number)) },
    { id: "state", name: "state", value: (row) => row.state, cell: (row) => el("span", { class: `state ${row.state}`, title: row.reason }, row.state + (study.best.includes(row.number) ? " ★" : "")) },
    ...study.objectives.map((name, i) => ({ id: `value${i}`, name, isRight: true, value: (row) => row.values[i] ?? null })),
    ...study.keys.map((key) => ({ id: key, name: shortKey(key), isRight: true, value: (row) => row.params[key] ?? null })),
  ];
  const box = el("div");
  const fill = (sort) => box.replaceChildren(table(columns, study.trials, { sort, onSort: fill, label: "trials" }));
  fill(study.directions[0] === "minimize" ? "value0" : "-value0");
  page.append(section("Trials", box));
  return page;
}

function history_(plot, study, done, open) {
  const sign = study.directions[0] === "minimize" ? -1 : 1;
  let best = -Infinity;
  const values = done.map((trial) => trial.values[0]);
  const soFar = values.map((value) => sign * (best = Math.max(best, sign * value)));
  const x = done.map((trial) => trial.number);
  return scatterChart(plot, [
    { x, y: values, mode: "markers", name: "trial", marker: { color: palette()[0], size: 7 }, customdata: x },
    { x, y: soFar, mode: "lines", name: "best so far", line: { color: palette()[1], shape: "hv" } },
  ], { xLabel: "trial", yLabel: study.objectives[0], onClick: open, legend: true });
}

async function rungs(plot, study) {
  const shown = study.trials.filter((trial) => trial.steps[0].length);
  if (!shown.length) return "No trial has reported values on its way.";
  await scatterChart(plot, shown.map((trial) => ({
    x: trial.steps[0], y: trial.steps[1], mode: "lines", name: `trial ${trial.number}`,
    line: { width: study.best.includes(trial.number) ? 2.5 : 1, color: trial.state === "pruned" ? color("faint") : look(trial.number).color, dash: trial.state === "pruned" ? "dot" : "solid" },
  })), { xLabel: "report", yLabel: study.objectives[0] });
  return null;
}
