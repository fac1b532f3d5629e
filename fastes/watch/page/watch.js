// The page: asks the server for what is new, and shows the chosen runs.
"use strict";

const POLL = 1000, SLOW_POLL = 5000, PATIENCE = 10_000; // milliseconds
const MOST_SHOWN = 12, LEAST_SMOOTHED = 10; // runs; evaluations
const EVALUATION = 3, MEAN = 3, SPEED = 4, UTILISATION = 5; // columns of rows that the server sends, after steps, seconds, CPU seconds

const byId = (id) => document.getElementById(id);
const table = new Map(); // name -> row of the table of runs
const runs = new Map(); // name -> what is known of a chosen run
const charts = {
  returns: new Chart("returns", 300), population: new Chart("population", 200), speed: new Chart("speed", 160),
  utilisation: new Chart("utilisation", 160),
};
let chosen = [], revision = "", timer = 0, isAsking = false, askAgain = false;

// --- small helpers ---------------------------------------------------------------------------------------------------

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

const setText = (place, text) => { if (place.textContent !== text) place.textContent = text; };

async function ask(path, values, options) {
  const answer = await fetch(`${path}?${new URLSearchParams(values)}`, { signal: AbortSignal.timeout(PATIENCE), ...options });
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`${values.name ?? path}: ${await answer.text()}`);
  return answer.json();
}

function showFacts(list, facts) {
  const rows = facts.filter(([, value]) => value !== "");
  while (list.children.length > rows.length) list.lastChild.remove();
  rows.forEach(([name, value], number) => {
    let row = list.children[number];
    if (!row) {
      row = element("div");
      row.append(element("dt"), element("dd"));
      list.append(row);
    }
    setText(row.firstChild, name);
    setText(row.lastChild, value);
  });
}

// --- asking ----------------------------------------------------------------------------------------------------------

async function update() {
  clearTimeout(timer);
  if (isAsking) { askAgain = true; return; }
  isAsking = true;
  askAgain = false;
  let wait = POLL;
  try {
    const complete = await updateTable();
    const names = [...chosen];
    const failed = (await Promise.allSettled(names.map(updateRun))).filter((each) => each.status === "rejected");
    if (failed.length) throw failed[0].reason;
    if (names.length === 1) await updateVideo(names[0]);
    byId("connection").classList.remove("lost");
    setText(byId("connection"), told());
    show();
    const isBusy = [...table.values()].some((row) => row.status === "running");
    wait = complete ? (isBusy ? POLL : SLOW_POLL) : 50;
  } catch (error) {
    byId("connection").classList.add("lost");
    const isSilent = error instanceof TypeError || error.name === "TimeoutError";
    setText(byId("connection"), isSilent ? "no answer: is fastes watch still running?" : String(error.message));
    show();
  }
  isAsking = false;
  if (askAgain) wait = 0;
  if (!document.hidden) timer = setTimeout(update, wait);
}

function told() {
  const running = [...table.values()].filter((row) => row.status === "running").length;
  return `${table.size} run${table.size === 1 ? "" : "s"}, ${running} running`;
}

async function updateTable() {
  const news = await ask("runs", { since: revision });
  if (news.anew) {
    const left = new Set(news.changed.map((row) => row.name));
    for (const name of [...table.keys()]) if (!left.has(name)) news.gone.push(name);
  }
  revision = news.revision;
  for (const row of news.changed) table.set(row.name, row);
  for (const name of news.gone) { table.delete(name); runs.delete(name); }
  if (news.gone.length) chosen = chosen.filter((name) => table.has(name));
  byId("none").hidden = table.size > 0 || !news.complete;
  if (news.changed.length || news.gone.length) showTable();
  if (!chosen.length && table.size && news.complete) choose(wished().filter((name) => table.has(name)));
  if (!chosen.length && table.size && news.complete) choose([inOrder()[0].name]);
  return news.complete;
}

async function updateRun(name) {
  const before = runs.get(name);
  const news = await ask("run", { name, cursor: JSON.stringify(before ? before.cursor : {}) });
  if (!news) { runs.delete(name); return; }
  const run = before ?? { trials: {} };
  if (before && before.cursor.reading !== news.cursor.reading) run.trials = {};
  for (const [trial, parts] of Object.entries(news.trials)) {
    const known = run.trials[trial] ??= { evaluations: [], generations: [] };
    for (const part of ["evaluations", "generations"]) {
      known[part].length = Math.min(known[part].length, parts[part].first);
      known[part].push(...parts[part].rows);
    }
  }
  const { trials: _, ...rest } = news;
  runs.set(name, Object.assign(run, rest));
}

// --- the table of runs -----------------------------------------------------------------------------------------------

// Running ones first, in a fixed order: they would change places whenever one of them writes.
function inOrder() {
  const isRunning = (row) => row.status === "running";
  const byName = new Intl.Collator(undefined, { numeric: true }).compare;
  return [...table.values()].sort((a, b) =>
    isRunning(b) - isRunning(a) || (isRunning(a) ? 0 : (b.updated ?? 0) - (a.updated ?? 0)) || byName(a.name, b.name));
}

function showTable() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (row) => words.every((word) => `${row.name} ${row.env} ${row.status} ${row.recipe}`.toLowerCase().includes(word));
  const body = byId("runs").tBodies[0];
  const rows = inOrder().filter(fits);
  const lines = new Map([...body.rows].map((line) => [line.name, line]));
  rows.forEach((row, number) => {
    const line = lines.get(row.name) ?? newLine(row.name);
    lines.delete(row.name);
    fillLine(line, row);
    if (body.rows[number] !== line) body.insertBefore(line, body.rows[number] ?? null);
  });
  for (const line of lines.values()) line.remove();
  showChosen();
}

function newLine(name) {
  const line = element("tr");
  line.name = name;
  const tick = element("input");
  tick.type = "checkbox";
  tick.setAttribute("aria-label", `compare ${name}`);
  tick.addEventListener("change", () => choose(tick.checked ? [...chosen, name] : chosen.filter((other) => other !== name)));
  const button = element("button", name);
  button.type = "button";
  button.addEventListener("click", () => choose([name]));
  const cells = [element("td"), element("td"), element("td"), element("td", "", "number"), element("td", "", "number")];
  cells[0].append(tick);
  cells[1].append(button);
  line.append(...cells);
  return line;
}

function fillLine(line, row) {
  const cells = line.cells;
  setText(cells[2], row.status);
  cells[2].className = `status-${row.status}`;
  setText(cells[3], score(row.score));
  setText(cells[4], short(row.timesteps));
}

function showChosen() {
  for (const line of byId("runs").tBodies[0].rows) {
    const isChosen = chosen.includes(line.name);
    line.classList.toggle("shown", isChosen);
    line.cells[0].firstChild.checked = isChosen;
    line.cells[1].firstChild.setAttribute("aria-pressed", isChosen);
  }
}

const wished = () => new URLSearchParams(location.hash.slice(1)).getAll("run");

function choose(names) {
  chosen = names.slice(-MOST_SHOWN);
  for (const name of [...runs.keys()]) if (!chosen.includes(name)) runs.delete(name);
  history.replaceState(null, "", `#${new URLSearchParams(chosen.map((name) => ["run", name]))}`);
  showChosen();
  show();
  update();
}

// --- the chosen runs -------------------------------------------------------------------------------------------------

const axis = () => Number(byId("axis").value); // of rows: steps, seconds, or CPU seconds
const xAxis = () => [{ xValue: short, xName: "steps" }, { xValue: inTime, xName: "time" }, { xValue: inTime, xName: "CPU time" }][axis()];

function show() {
  const shown = chosen.map((name) => runs.get(name)).filter(Boolean);
  byId("view").hidden = !shown.length;
  if (!shown.length) return;
  const single = shown.length === 1 ? shown[0] : null;
  for (const id of ["facts", "population-box", "video-box", "settings-box"]) byId(id).hidden = !single;
  byId("compared-box").hidden = Boolean(single);
  byId("done").hidden = true;
  setText(byId("title"), single ? `${single.env}, ${single.name}` : `${shown.length} runs`);
  if (single) showOne(single);
  else showSeveral(shown);
}

// The trial that is left, or the one with the best newest evaluations if several are.
function leaderOf(run) {
  const last = run.rungs.at(-1), trials = Object.keys(run.trials);
  if (last && last.kept === 1) return String(last.trials[0]);
  const newest = (trial) => median(run.trials[trial].evaluations.slice(-5).map((row) => row[EVALUATION])) ?? -Infinity;
  const left = last ? trials.filter((trial) => last.trials.slice(0, last.kept).includes(Number(trial))) : trials;
  return left.reduce((best, trial) => (newest(trial) > newest(best) ? trial : best), left[0] ?? trials[0]);
}

const curveOf = (run, trial) => run.trials[trial] ?? { evaluations: [], generations: [] };
const leading = (run) => curveOf(run, leaderOf(run));

function showOne(run) {
  const own = leading(run).generations, x = axis();
  showRunFacts(run, own);
  charts.returns.show(...returnsOfOne(run, x), { ...xAxis(), yValue: score });
  charts.speed.show(columns(own, x, SPEED), [{ label: "steps/s", colour: colour(0) }], { ...xAxis(), yRange: fromZero });
  const busy = [{ label: "utilisation", colour: colour(0) }];
  charts.utilisation.show(columns(own, x, UTILISATION), busy, { ...xAxis(), yValue: inPercent, yTick: inPercent, yRange: () => [0, 1] });
  showPopulation(run.population);
  showRace(run);
  showFacts(byId("settings"), Object.entries(run.settings));
}

const inPercent = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)} %`);
const fromZero = (_, least, most) => [0, most > 0 ? most * 1.1 : 1];
const columns = (rows, ...names) => names.map((name) => placed(rows, names[0]).map((row) => row[name]));
const placed = (rows, x) => rows.filter((row) => row[x] !== null); // an earlier version's rows have no CPU time

function showRunFacts(run, own) {
  const result = run.result;
  const last = own.slice(-20), speed = last.length > 1 ? (last.at(-1)[0] - last[0][0]) / (last.at(-1)[1] - last[0][1]) : NaN;
  const left = run.status === "running" && run.budget ? (run.budget - run.timesteps) / speed : NaN;
  const newest = leading(run).evaluations.at(-1);
  showFacts(byId("facts"), [
    ["status", run.status], ["seed", String(run.seed ?? "–")],
    ["best evaluation", score(run.best)],
    ["newest evaluation", newest ? score(newest[EVALUATION]) : "–"],
    ["result", result ? `${score(result.mean)} ± ${score(result.std)}, worst ${score(result.worst)}, ${result.episodes} episodes` : ""],
    ["steps", run.budget ? `${short(run.timesteps)} of ${short(run.budget)}` : short(run.timesteps)],
    ["generations", String(run.generations)],
    ["time", inTime(run.seconds)], ["CPU time", run.cpu_seconds === null ? "" : inTime(run.cpu_seconds)], ["left", left > 0 ? inTime(left) : ""],
    ["steps per second", last.length ? short(last.at(-1)[SPEED]) : "–"],
    ["utilisation", last.length ? inPercent(last.at(-1)[UTILISATION]) : "–"],
    ["recipe", run.recipe], ["not read", run.reason],
  ]);
  byId("done").hidden = !run.budget || run.status !== "running";
  byId("done").value = run.budget ? Math.min(run.timesteps / run.budget, 1) : 0;
}

function returnsOfOne(run, x) {
  const tables = [], lines = [];
  const add = (rows, column, line) => {
    tables.push(columns(rows, x, column));
    lines.push(line);
  };
  const first = leaderOf(run), leader = curveOf(run, first), many = Object.keys(run.trials).length > 1;
  const name = (trial) => run.recipes[trial] || `trial ${trial}`;
  let number = 1;
  for (const [trial, curve] of Object.entries(run.trials))
    if (curve !== leader) add(smoothed(curve.evaluations), EVALUATION, { label: name(trial), colour: colour(number++), width: 1.2 });
  add(leader.generations, MEAN, { label: "population, mean", colour: ofPage("--soft"), width: 1, dash: [3, 3] });
  add(leader.evaluations, EVALUATION, { label: "one evaluation", colour: colour(0), points: true });
  const label = many ? `${name(first)}, running median` : "running median of the evaluations";
  add(smoothed(leader.evaluations), EVALUATION, { label, colour: colour(0), width: 2.5 });
  return [uPlot.join(tables), lines];
}

// The running median, as `fastes plot` draws it: over a tenth of the evaluations, at least 5 and at most 51.
function smoothed(rows) {
  if (rows.length < LEAST_SMOOTHED) return rows;
  const half = Math.floor(Math.min(Math.max(Math.floor(rows.length / 10), 5), 51) / 2);
  return rows.map((row, at) => {
    const around = rows.slice(Math.max(0, at - half), at + Math.min(half, at) + 1).map((other) => other[EVALUATION]);
    return [row[0], row[1], row[2], median(around)];
  });
}

function median(values) {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b), middle = known.length >> 1;
  return !known.length ? null : known.length % 2 ? known[middle] : (known[middle - 1] + known[middle]) / 2;
}

function showPopulation(population) {
  const box = byId("population-title");
  if (!population) {
    charts.population.drop();
    setText(box, "Returns of the newest population: not written yet");
    return;
  }
  const { counts, low, high, generation } = population, width = (high - low) / counts.length;
  const centres = counts.map((_, bin) => low + (bin + 0.5) * width);
  const total = counts.reduce((sum, count) => sum + count, 0);
  setText(box, `Returns of ${total} candidates, generation ${generation}`);
  charts.population.show([centres, counts], [{ label: "candidates", colour: colour(0), width: 0, bars: true }], {
    xValue: short, xName: "return", xRange: () => [low, high], yRange: fromZero,
  });
}

// --- races -----------------------------------------------------------------------------------------------------------

function showRace(run) {
  byId("race-box").hidden = !run.rungs.length;
  if (!run.rungs.length) return;
  setText(byId("race-title"), run.rungs.at(-1).recipes.some(Boolean) ? "The race of recipes" : "The trials");
  const place = byId("race"), kind = JSON.stringify(run.rungs);
  if (place.kind === kind) return;
  place.kind = kind;
  const head = element("tr");
  head.append(...run.rungs.map((rung, number) => element("th", `rung ${number + 1}, after ${short(rung.at)} steps`)));
  const most = Math.max(...run.rungs.map((rung) => rung.trials.length));
  const rows = Array.from({ length: most }, (_, at) => {
    const row = element("tr");
    row.append(...run.rungs.map((rung) => {
      if (at >= rung.trials.length) return element("td");
      const text = `${at + 1}. ${rung.recipes[at] || `trial ${rung.trials[at]}`}: ${score(rung.scores[at])}`;
      return element("td", at < rung.kept ? `${text}, goes on` : text, at < rung.kept ? "on" : "out");
    }));
    return row;
  });
  place.replaceChildren(head, ...rows);
}

// --- several runs ----------------------------------------------------------------------------------------------------

// Runs that differ in their seeds alone are one group.
function groupsOf(shown) {
  const found = new Map();
  for (const run of shown) {
    if (!found.has(run.group)) found.set(run.group, []);
    found.get(run.group).push(run);
  }
  const groups = [...found.values()], names = new Set(groups.flatMap(([run]) => Object.keys(run.told)));
  const differ = [...names].filter((name) => new Set(groups.map(([run]) => run.told[name])).size > 1);
  const environments = new Set(groups.map(([run]) => run.env));
  return groups.map((group) => {
    const [run] = group;
    const words = environments.size > 1 ? run.env : differ.slice(0, 3).map((name) => `${name} ${run.told[name] ?? "–"}`).join(", ");
    return { runs: group, label: group.length > 1 ? `${words || run.env}, median and range of ${group.length} seeds` : run.name };
  });
}

function showSeveral(shown) {
  const x = axis(), groups = groupsOf(shown), tables = [], lines = [], bands = [];
  groups.forEach((group, number) => {
    const curves = group.runs.map((run) => placed(smoothed(leading(run).evaluations), x)).filter((rows) => rows.length);
    const own = colour(number);
    if (curves.length < 2) {
      tables.push(columns(curves[0] ?? [], x, EVALUATION));
      lines.push({ label: group.label, colour: own });
      return;
    }
    const [at, least, middle, most] = spread(curves, x);
    tables.push([at, most, least, middle]);
    bands.push([lines.length + 1, lines.length + 2, `${own}33`]);
    const edge = { colour: `${own}66`, width: 1, unnamed: true };
    lines.push({ ...edge, label: `${group.label}, best` }, { ...edge, label: `${group.label}, worst` });
    lines.push({ label: group.label, colour: own, width: 2.5 });
  });
  charts.returns.show(uPlot.join(tables), lines, { ...xAxis(), bands, yValue: score, legend: true });
  const coloured = groups.flatMap((group, number) => group.runs.map((run) => ({ run, colour: colour(number) })));
  const named = coloured.map(({ run, colour: own }) => ({ label: run.name, colour: own, width: 1.5 }));
  const each = (column) => uPlot.join(coloured.map(({ run }) => columns(leading(run).generations, x, column)));
  charts.speed.show(each(SPEED), named, { ...xAxis(), yRange: fromZero, legend: false });
  charts.utilisation.show(each(UTILISATION), named, { ...xAxis(), yValue: inPercent, yTick: inPercent, yRange: () => [0, 1], legend: false });
  showCompared(coloured);
  byId("race-box").hidden = true;
}

// x, least, median and most of curves where all of them are known.
function spread(curves, x) {
  const begin = Math.max(...curves.map((rows) => rows[0][x])), end = Math.min(...curves.map((rows) => rows.at(-1)[x]));
  const at = Array.from({ length: 200 }, (_, number) => begin + (Math.max(end - begin, 0) * number) / 199);
  const each = curves.map((rows) => interpolated(rows, x, at));
  const over = (choose) => at.map((_, number) => choose(each.map((values) => values[number])));
  return [at, over((v) => Math.min(...v)), over(median), over((v) => Math.max(...v))];
}

function interpolated(rows, x, at) {
  let number = 0;
  return at.map((here) => {
    while (number < rows.length - 2 && rows[number + 1][x] < here) number += 1;
    const [from, to] = [rows[number], rows[Math.min(number + 1, rows.length - 1)]];
    const share = to[x] > from[x] ? Math.min(Math.max((here - from[x]) / (to[x] - from[x]), 0), 1) : 0;
    return from[EVALUATION] + share * (to[EVALUATION] - from[EVALUATION]);
  });
}

function showCompared(coloured) {
  const shown = coloured.map(({ run }) => run), names = new Set(shown.flatMap((run) => Object.keys(run.settings)));
  const differ = [...names].filter((name) => new Set(shown.map((run) => run.settings[name])).size > 1).slice(0, 8);
  const head = element("tr");
  head.append(...["run", "seed", "status", "best", "result", "steps", "time", ...differ].map((name) => element("th", name)));
  const rows = coloured.map(({ run, colour: own }) => {
    const row = element("tr"), swatch = element("span", "", "swatch");
    swatch.style.background = own;
    const cells = [run.name, run.seed, run.status, score(run.best), score(run.result?.mean), short(run.timesteps), inTime(run.seconds)];
    row.append(...[...cells, ...differ.map((name) => run.settings[name] ?? "–")].map((cell) => element("td", String(cell ?? "–"))));
    row.cells[0].prepend(swatch);
    return row;
  });
  byId("compared").replaceChildren(head, ...rows);
}

// --- the video -------------------------------------------------------------------------------------------------------

async function updateVideo(name) {
  const state = await ask("video", { name });
  if (state && chosen.length === 1 && chosen[0] === name) showVideo(name, state);
}

function showVideo(name, state) {
  const video = byId("video"), source = `video.mp4?${new URLSearchParams({ name, number: state.number })}`;
  video.hidden = state.state !== "ready";
  if (state.state === "ready" && video.getAttribute("src") !== source) video.src = source;
  byId("draw").disabled = state.state === "drawing" || state.busy || !state.has_policy;
  setText(byId("draw"), state.state === "ready" ? "Draw it again" : "Draw a video");
  const words = {
    none: state.has_policy ? "" : "no policy was saved yet",
    drawing: "drawing: it takes about as long as an episode",
    ready: state.newest ? "" : "there is a newer policy",
    failed: `it could not be drawn: ${state.error}`,
  };
  setText(byId("video-words"), state.busy ? "the video of another run is being drawn" : words[state.state]);
}

byId("draw").addEventListener("click", async () => {
  const [name] = chosen;
  byId("draw").disabled = true;
  const state = await ask("video", { name }, { method: "POST" });
  if (state && chosen[0] === name) showVideo(name, state);
  update();
});

// --- begin -----------------------------------------------------------------------------------------------------------

byId("filter").addEventListener("input", showTable);
byId("axis").addEventListener("change", show);
isDark.addEventListener("change", show);
addEventListener("hashchange", () => choose(wished().filter((name) => table.has(name))));
document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
document.addEventListener("keydown", (event) => {
  const line = document.activeElement?.closest?.("#runs tbody tr");
  if (event.key === "/" && document.activeElement.tagName !== "INPUT") {
    event.preventDefault();
    byId("filter").focus();
  } else if (line && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    event.preventDefault();
    const other = event.key === "ArrowDown" ? line.nextSibling : line.previousSibling;
    other?.cells[1].firstChild.focus();
  }
});
update();
