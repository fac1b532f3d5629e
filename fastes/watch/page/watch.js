// The page: asks the server for what is new, and shows the chosen runs.
"use strict";

const POLL = 1000, SLOW_POLL = 5000, PATIENCE = 10_000; // milliseconds
const MOST_SHOWN = 12, MOST_NAMED = 4, LEAST_SMOOTHED = 10; // runs; runs that each chart names; evaluations
const NOW = "now, running mean of the evaluations"; // a column of the table of a race
const EVALUATION = 3, MEAN = 3, SPEED = 4, UTILISATION = 5; // columns of rows that the server sends, after steps, seconds, CPU seconds

const byId = (id) => document.getElementById(id);
const table = new Map(); // name -> row of the table of runs
const runs = new Map(); // name -> what is known of a chosen run
const charts = {
  returns: new Chart("returns", 310), population: new Chart("population", 200, false), speed: new Chart("speed", 170),
  utilisation: new Chart("utilisation", 170),
};
let chosen = [], revision = "", isComplete = false, timer = 0, isAsking = false, askAgain = false;
let sorting = { by: "", down: false }; // by a column of the table of runs; "" is the order that it has by itself

// --- small helpers ---------------------------------------------------------------------------------------------------

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

const setText = (place, text) => { if (place.textContent !== text) place.textContent = text; };
const isThere = (name) => table.has(name);

// A path that is broken after a slash if it is too long.
function path(name) {
  return name.split("/").flatMap((part, number) => (number ? ["/", element("wbr"), part] : [part]));
}

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
    const names = [...chosen], asked = names.map(updateRun);
    if (names.length === 1) asked.push(updateVideo(names[0]));
    const told = await Promise.allSettled(asked), failed = told.filter((each) => each.status === "rejected");
    if (failed.length) throw failed[0].reason;
    byId("connection").classList.remove("lost");
    setText(byId("connection"), inShort());
    if (told.some((each) => each.value)) show();
    else showSilence();
    const isBusy = [...table.values()].some((row) => row.status === "running");
    const isRead = complete && [...runs.values()].every((run) => run.complete);
    wait = isRead ? (isBusy ? POLL : SLOW_POLL) : 20;
  } catch (error) {
    byId("connection").classList.add("lost");
    setText(byId("connection"), inWords(error));
    show();
  }
  isAsking = false;
  if (askAgain) wait = 0;
  if (!document.hidden) timer = setTimeout(update, wait);
}

function inWords(error) {
  const isSilent = error instanceof TypeError || error.name === "TimeoutError";
  return isSilent ? "no answer: is fastes watch still running?" : String(error.message);
}

function inShort() {
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
  if (news.gone.length) {
    chosen = chosen.filter(isThere);
    show();
  }
  const isNew = news.changed.length || news.gone.length || news.complete !== isComplete;
  isComplete = news.complete;
  if (isNew) showTable();
  const asked = wished();
  if (!chosen.length && table.size && (news.complete || (asked.length && asked.every(isThere)))) chooseWished();
  return news.complete;
}

// Returns whether there is anything new.
async function updateRun(name) {
  const before = runs.get(name);
  const news = await ask("run", { name, cursor: JSON.stringify(before ? before.cursor : {}) });
  if (!chosen.includes(name)) return false; // others have been chosen meanwhile
  if (!news) { runs.delete(name); return true; }
  const run = before ?? { trials: {} };
  if (before && before.cursor.reading !== news.cursor.reading) run.trials = {};
  for (const [trial, parts] of Object.entries(news.trials)) {
    const known = run.trials[trial] ??= { evaluations: [], generations: [] };
    for (const part of ["evaluations", "generations"]) {
      known[part].length = Math.min(known[part].length, parts[part].first);
      known[part].push(...parts[part].rows);
    }
    const { last } = news; // told when training ended: the next answer cuts it off again, as the server's rows end before it
    if (last && last.trial === Number(trial) && !(known.evaluations.at(-1)?.[0] >= last.row[0])) known.evaluations.push(last.row);
  }
  const { trials: _, ...rest } = news;
  const state = JSON.stringify({ ...rest, silent: 0 }), isNew = state !== run.state;
  runs.set(name, Object.assign(run, rest, { state }));
  return isNew;
}

// --- the table of runs -----------------------------------------------------------------------------------------------

const byName = new Intl.Collator(undefined, { numeric: true }).compare;

// By itself running ones first, in a fixed order: they would change places whenever one of them writes.
function inOrder() {
  const isRunning = (row) => row.status === "running", { by, down } = sorting;
  if (by) return [...table.values()].sort((a, b) => (down ? -1 : 1) * compared(a[by], b[by], down) || byName(a.name, b.name));
  return [...table.values()].sort((a, b) =>
    isRunning(b) - isRunning(a) || (isRunning(a) ? 0 : (b.updated ?? 0) - (a.updated ?? 0)) || byName(a.name, b.name));
}

// Numbers that are not known come last.
function compared(a, b, down) {
  if (typeof a === "string") return byName(a, b);
  const least = down ? -Infinity : Infinity;
  return Math.sign((a ?? least) - (b ?? least)) || 0;
}

// Of each column first the best, or the first letters; then the other way round; then the order that it has by itself.
function sortBy(by) {
  const first = by === "score" || by === "timesteps";
  if (sorting.by !== by) sorting = { by, down: first };
  else sorting = sorting.down === first ? { by, down: !first } : { by: "", down: false };
  for (const button of document.querySelectorAll("[data-sort]")) {
    const order = button.dataset.sort !== sorting.by ? "none" : sorting.down ? "descending" : "ascending";
    button.parentElement.setAttribute("aria-sort", order);
  }
  showTable();
}

function listed() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (row) => words.every((word) => `${row.name} ${row.env} ${row.status} ${row.word} ${row.recipe}`.toLowerCase().includes(word));
  return inOrder().filter(fits);
}

function showTable() {
  const body = byId("runs").tBodies[0], focused = document.activeElement;
  const rows = listed();
  byId("none").hidden = rows.length > 0 || !isComplete;
  setText(byId("none"), table.size ? `None of ${table.size} runs has “${byId("filter").value.trim()}” in its name, environment, status or recipe.`
    : "No runs yet. This page shows them as soon as a training begins.");
  const lines = new Map([...body.rows].map((line) => [line.name, line]));
  rows.forEach((row, number) => {
    const line = lines.get(row.name) ?? newLine(row.name);
    lines.delete(row.name);
    fillLine(line, row);
    if (body.rows[number] !== line) body.insertBefore(line, body.rows[number] ?? null);
  });
  for (const line of lines.values()) line.remove();
  if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true }); // its row has moved
  showChosen();
}

function newLine(name) {
  const line = element("tr");
  line.name = name;
  const tick = element("input");
  tick.type = "checkbox";
  tick.setAttribute("aria-label", `compare ${name}`);
  tick.addEventListener("change", () => choose(tick.checked ? [...chosen, name] : chosen.filter((other) => other !== name)));
  const button = element("button");
  button.append(...path(name));
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
  setText(cells[2], row.word);
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
  const names = listed().slice(0, MOST_SHOWN).map((row) => row.name);
  byId("all").checked = names.length > 0 && names.every((name) => chosen.includes(name));
}

const wished = () => new URLSearchParams(location.hash.slice(1)).getAll("run");

function choose(names) {
  if (!names.some((name) => chosen.includes(name))) zoom.part = null;
  chosen = names.slice(-MOST_SHOWN);
  setText(byId("gone"), "");
  for (const name of [...runs.keys()]) if (!chosen.includes(name)) runs.delete(name);
  history.replaceState(null, "", `#${new URLSearchParams(chosen.map((name) => ["run", name]))}`);
  showChosen();
  show();
  update();
}

// Those in the page's address, or else the first; an address may be of a run that is gone.
function chooseWished() {
  const asked = wished(), there = asked.filter(isThere), gone = asked.filter((name) => !isThere(name));
  choose(there.length ? there : inOrder().slice(0, 1).map((row) => row.name));
  const rest = there.length ? "" : ". The first of the list is shown";
  if (gone.length) setText(byId("gone"), `There is no run ${gone.join(", ")}${rest}.`);
}

// --- the chosen runs -------------------------------------------------------------------------------------------------

const axis = () => Number(byId("axis").value); // of rows: steps, seconds, or CPU seconds
const xAxis = () => [{ xValue: short, xName: "steps" }, { xValue: inTime, xName: "time" }, { xValue: inTime, xName: "CPU time" }][axis()];
const styleOf = (number) => ({ colour: colour(number), dash: dash(number) });

function show() {
  const shown = chosen.map((name) => runs.get(name)).filter(Boolean);
  byId("view").hidden = !shown.length;
  if (!shown.length) return;
  const single = shown.length === 1 ? shown[0] : null;
  for (const id of ["facts", "population-box", "video-box", "settings-box"]) byId(id).hidden = !single;
  byId("compared-box").hidden = Boolean(single);
  byId("done").hidden = true;
  chooseScale(shown);
  const many = `${shown.length} runs${shown.length === MOST_SHOWN ? ", the most that are compared" : ""}`;
  setText(byId("title"), single ? [single.env, single.name].filter(Boolean).join(", ") : many);
  if (single) showOne(single);
  else showSeveral(shown);
  showZoom();
}

// A logarithmic axis has no place for values at 0: they are left out, and it is linear as long as there are no others.
function chooseScale(shown) {
  const x = axis(), curves = shown.length === 1 ? Object.values(shown[0].trials) : shown.map(leading);
  const values = curves.flatMap(({ evaluations, generations }) => [...evaluations, ...generations].map((row) => row[x]));
  const known = values.filter(isKnown), left = known.filter((value) => value <= 0).length;
  const isWished = byId("log").checked, isLog = isWished && left < known.length;
  if (isLog !== zoom.isLog) zoom.part = null;
  zoom.isLog = isLog;
  const words = isLog ? `${left} value${left === 1 ? "" : "s"} at 0 left out` : "the axis is linear: no value above 0 yet";
  setText(byId("left-out"), isWished && !(isLog && !left) ? words : "");
}

function showZoom() {
  const { xValue } = xAxis();
  setText(byId("part"), zoom.part ? `${xValue(zoom.part[0])} to ${xValue(zoom.part[1])}` : "");
  for (const button of document.querySelectorAll("[data-zoom]")) button.disabled = !zoom.part && button.dataset.zoom !== "in";
}

// The trial that is left, or that training has shown at its end; before that the one with the best evaluations, as fastes plot has it.
function leaderOf(run) {
  if (run.leader in run.trials) return String(run.leader);
  const last = run.rungs.at(-1), left = leftOf(run), level = (trial) => levelOf(run, trial) ?? -Infinity;
  if (last && last.kept === 1) return String(last.trials[0]);
  return left.reduce((best, trial) => (level(trial) > level(best) ? trial : best), left[0] ?? Object.keys(run.trials)[0]);
}

// The trials that have not been dropped.
function leftOf(run) {
  const last = run.rungs.at(-1), trials = Object.keys(run.trials);
  return last ? trials.filter((trial) => last.trials.slice(0, last.kept).includes(Number(trial))) : trials;
}

// The running mean of a trial's evaluations since the last rung, to which each gives a third; it begins with the score there.
function levelOf(run, trial) {
  const last = run.rungs.at(-1), since = last?.at ?? -Infinity, begin = last?.scores[last.trials.indexOf(Number(trial))] ?? null;
  const values = run.trials[trial].evaluations.filter((row) => row[0] > since && row[EVALUATION] !== null).map((row) => row[EVALUATION]);
  return values.reduce((mean, value) => (mean === null ? value : mean + (value - mean) / 3), begin);
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

// Columns of rows, the first of which is x.
function columns(rows, x, ...names) {
  const shown = placed(rows, x);
  return [x, ...names].map((name) => shown.map((row) => row[name]));
}

// The rows that have a place on the axis. Those of an earlier version have no CPU time.
const placed = (rows, x) => rows.filter((row) => row[x] !== null && (!zoom.isLog || row[x] > 0));

const isAlone = (rows) => rows.length === 1; // a line with a single point would not be seen

function showRunFacts(run, own) {
  const result = run.result;
  const last = own.slice(-20), speed = last.length > 1 ? (last.at(-1)[0] - last[0][0]) / (last.at(-1)[1] - last[0][1]) : NaN;
  const left = run.status === "running" && run.budget ? (run.budget - run.timesteps) / speed : NaN;
  const newest = leading(run).evaluations.at(-1);
  showFacts(byId("facts"), [
    ["status", run.status], ["ended", run.ended], ["seed", String(run.seed ?? "–")],
    ["best evaluation", score(run.best)],
    ["newest evaluation", newest ? score(newest[EVALUATION]) : "–"],
    ["result", result ? `${score(result.mean)} ± ${score(result.std)}, worst ${score(result.worst)}, ${result.episodes} episodes` : ""],
    ["steps", run.budget ? `${short(run.timesteps)} of ${short(run.budget)}` : short(run.timesteps)],
    ["generations", String(run.generations)],
    ["time", inTime(run.seconds)], ["CPU time", run.cpu_seconds === null ? "" : inTime(run.cpu_seconds)],
    ["left", run.status === "running" ? inTime(left > 0 ? left : NaN) : ""],
    ["last row written", run.status === "finished" || run.silent === null ? "" : `${inTime(Math.round(run.silent))} ago`],
    ["steps per second", last.length ? short(last.at(-1)[SPEED]) : "–"],
    ["utilisation", last.length ? inPercent(last.at(-1)[UTILISATION]) : "–"],
    ["recipe", run.recipe], ["not read", run.reason],
  ]);
  byId("done").hidden = !run.budget || run.status !== "running";
  byId("done").value = run.budget ? Math.min(run.timesteps / run.budget, 1) : 0;
}

// Nothing but time has passed.
function showSilence() {
  const [run] = runs.values();
  if (runs.size === 1) showRunFacts(run, leading(run).generations);
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
    if (curve !== leader) {
      const rows = smoothed(curve.evaluations);
      add(rows, EVALUATION, { label: name(trial), ...styleOf(number++), width: 1.2, points: isAlone(rows) });
    }
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
    xValue: short, xName: "return", yName: "candidates", xRange: () => [low, high], yRange: fromZero,
  });
}

// --- races -----------------------------------------------------------------------------------------------------------

function showRace(run) {
  const name = (trial, recipe) => recipe || run.recipes[trial] || `trial ${trial}`;
  const stages = run.rungs.map((rung, number) => ({
    title: `rung ${number + 1}, after ${short(rung.at)} steps`,
    entries: rung.trials.map((trial, at) => ({ name: name(trial, rung.recipes[at]), score: rung.scores[at], goesOn: at < rung.kept })),
  }));
  const left = leftOf(run);
  if (run.status === "running" && left.length > 1) {
    const entries = left.map((trial) => ({ name: name(trial), score: levelOf(run, trial), goesOn: false }));
    entries.sort((a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity));
    stages.push({ title: NOW, entries });
  }
  byId("race-box").hidden = !stages.length;
  if (!stages.length) return;
  setText(byId("race-title"), Object.keys(run.recipes).length ? "The race of recipes" : "The trials");
  const head = stages.map((stage) => element("th", stage.title));
  const most = Math.max(...stages.map((stage) => stage.entries.length));
  const rows = Array.from({ length: most }, (_, at) => stages.map(({ title, entries }) => {
    if (at >= entries.length) return element("td");
    const { name: told, score: value, goesOn } = entries[at], text = `${at + 1}. ${told}: ${score(value)}`;
    return element("td", goesOn ? `${text}, continues` : text, goesOn ? "on" : title === NOW ? "" : "out");
  }));
  fill(byId("race"), [head, ...rows]);
}

// Write a table anew if it has changed.
function fill(place, lines) {
  const kind = lines.map((cells) => cells.map((cell) => cell.outerHTML).join("")).join("\n");
  if (place.kind === kind) return;
  place.kind = kind;
  place.replaceChildren(...lines.map((cells) => {
    const row = element("tr");
    row.append(...cells);
    return row;
  }));
}

// --- several runs ----------------------------------------------------------------------------------------------------

// The names of settings whose values are not the same in all of several runs.
const differing = (many) => [...new Set(many.flatMap((own) => Object.keys(own)))].filter((name) => new Set(many.map((own) => own[name])).size > 1);

// Runs that differ in their seeds alone are one group.
function groupsOf(shown) {
  const found = new Map();
  for (const run of shown) {
    if (!found.has(run.group)) found.set(run.group, []);
    found.get(run.group).push(run);
  }
  const groups = [...found.values()], told = groups.map(([run]) => run.told);
  const isMixed = new Set(told.map((own) => "recipes" in own)).size > 1; // races, and runs whose settings no race has
  const tells = (name) => name === "recipes" || !isMixed || told.every((own) => name in own);
  const differ = differing(told).filter(tells);
  const environments = new Set(groups.map(([run]) => run.env));
  const isMany = groups.some((group) => group.length > 1);
  return groups.map((group) => {
    const [run] = group;
    const words = environments.size > 1 ? run.env : differ.slice(0, 3).map((name) => `${name} ${run.told[name] ?? "–"}`).join(", ");
    const alone = isMany && words ? `${words}: ${run.name}` : run.name; // as `fastes plot` names it
    return { runs: group, label: group.length > 1 ? `${words || run.env}, median and range of ${group.length} seeds` : alone };
  });
}

function showSeveral(shown) {
  const inOrder = [...shown].sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true })); // colours as `fastes plot` has them
  const x = axis(), groups = groupsOf(inOrder), tables = [], lines = [], bands = [];
  groups.forEach((group, number) => {
    const known = group.runs.map((run) => ({ rows: placed(smoothed(leading(run).evaluations), x), stays: run.solved }));
    const curves = known.filter(({ rows }) => rows.length);
    const style = styleOf(number), own = style.colour;
    if (curves.length < 2) {
      tables.push(columns(curves[0]?.rows ?? [], x, EVALUATION));
      lines.push({ label: group.label, ...style, points: isAlone(curves[0]?.rows ?? []) });
      return;
    }
    const [at, least, middle, most] = spread(curves, x, EVALUATION);
    tables.push([at, most, least, middle]);
    bands.push([lines.length + 1, lines.length + 2, `${own}33`]);
    const edge = { colour: `${own}66`, width: 1, unnamed: true };
    lines.push({ ...edge, label: `${group.label}, best` }, { ...edge, label: `${group.label}, worst` });
    lines.push({ label: group.label, ...style, width: 2.5 });
  });
  charts.returns.show(uPlot.join(tables), lines, { ...xAxis(), bands, yValue: score });
  const named = groups.map((group, number) => ({ label: group.label.replace(/, median and range.*/, ""), ...styleOf(number), width: 1.5 }));
  const each = (column) => uPlot.join(groups.map((group) => {
    const curves = group.runs.map((run) => ({ rows: placed(leading(run).generations, x) })).filter(({ rows }) => rows.length);
    if (curves.length < 2) return columns(curves[0]?.rows ?? [], x, column);
    const [at, , middle] = spread(curves, x, column);
    return [at, middle];
  }));
  const options = { ...xAxis(), legend: groups.length <= MOST_NAMED };
  charts.speed.show(each(SPEED), named, { ...options, yRange: fromZero });
  charts.utilisation.show(each(UTILISATION), named, { ...options, yValue: inPercent, yTick: inPercent, yRange: () => [0, 1] });
  showCompared(groups.flatMap((group, number) => group.runs.map((run) => ({ run, style: styleOf(number) }))));
  byId("race-box").hidden = true;
}

// x, and the least, median and most of a column of curves, as `fastes plot` has them: a curve that stays keeps its last value to the
// end of the longest, another one leaves them at its end, and they end when fewer than half of the curves are left.
function spread(curves, x, column) {
  const begin = Math.max(...curves.map(({ rows }) => rows[0][x])), longest = Math.max(...curves.map(({ rows }) => rows.at(-1)[x]));
  const ends = curves.map(({ rows, stays }) => (stays ? longest : rows.at(-1)[x]));
  const end = Math.max(begin, [...ends].sort((a, b) => a - b)[ends.length >> 1]);
  const place = (share) => (zoom.isLog ? begin * (end / begin) ** share : begin + (end - begin) * share);
  const at = Array.from({ length: 200 }, (_, number) => Math.min(place(number / 199), end)); // rounded it may be more
  const each = curves.map(({ rows }) => interpolated(rows, x, column, at));
  const over = (choose) => at.map((here, number) => choose(each.flatMap((values, curve) => (here <= ends[curve] ? [values[number]] : []))));
  return [at, over((v) => Math.min(...v)), over(median), over((v) => Math.max(...v))];
}

function interpolated(rows, x, column, at) {
  let number = 0;
  return at.map((here) => {
    while (number < rows.length - 2 && rows[number + 1][x] < here) number += 1;
    const [from, to] = [rows[number], rows[Math.min(number + 1, rows.length - 1)]];
    const share = to[x] > from[x] ? Math.min(Math.max((here - from[x]) / (to[x] - from[x]), 0), 1) : 0;
    return from[column] + share * (to[column] - from[column]);
  });
}

function showCompared(styled) {
  const differ = differing(styled.map(({ run }) => run.settings)).slice(0, 8);
  const head = ["run", "seed", "status", "best", "result", "steps", "time", ...differ].map((name) => element("th", name));
  const rows = styled.map(({ run, style }) => {
    const swatch = element("span", "", "swatch");
    swatch.style.borderTop = `3px ${style.dash ? "dashed" : "solid"} ${style.colour}`;
    const told = [run.name, run.seed, run.word, score(run.best), score(run.result?.mean), short(run.timesteps), inTime(run.seconds)];
    const cells = [...told, ...differ.map((name) => run.settings[name])].map((cell) => element("td", String(cell ?? "–")));
    cells[0].prepend(swatch);
    return cells;
  });
  fill(byId("compared"), [head, ...rows]);
}

// --- the video -------------------------------------------------------------------------------------------------------

const refused = { name: "", words: "" }; // the run whose video was asked for last, and why the request failed

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
  const why = refused.name === name ? refused.words : "";
  setText(byId("video-words"), why || (state.busy ? "the video of another run is being drawn" : words[state.state]));
}

byId("draw").addEventListener("click", async () => {
  const [name] = chosen;
  byId("draw").disabled = true;
  Object.assign(refused, { name, words: "" });
  try {
    const state = await ask("video", { name }, { method: "POST" });
    if (state && chosen[0] === name) showVideo(name, state);
  } catch (error) {
    refused.words = `it could not be drawn: ${inWords(error)}`;
    if (chosen[0] === name) setText(byId("video-words"), refused.words);
    byId("draw").disabled = false;
  }
  update();
});

const buttonOf = (line) => line?.cells[1].firstChild;

// --- begin -----------------------------------------------------------------------------------------------------------

byId("filter").addEventListener("input", showTable);
byId("all").addEventListener("change", () => choose(byId("all").checked ? listed().slice(0, MOST_SHOWN).map((row) => row.name) : chosen.slice(0, 1)));
byId("axis").addEventListener("change", () => zoom.set(null));
byId("log").addEventListener("change", show);
zoom.onChange = show;
for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => zoom[button.dataset.zoom]());
for (const button of document.querySelectorAll("[data-sort]")) button.addEventListener("click", () => sortBy(button.dataset.sort));
isDark.addEventListener("change", show);
addEventListener("hashchange", chooseWished);
document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
document.addEventListener("keydown", (event) => {
  const focused = document.activeElement, line = focused?.closest?.("#runs tbody tr");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  let next = null; // what gets the focus
  if (event.key === "/" && focused !== byId("filter")) next = byId("filter");
  else if (event.key === "ArrowDown" && focused === byId("filter")) next = buttonOf(byId("runs").tBodies[0].rows[0]);
  else if (event.key === "ArrowDown" && line) next = buttonOf(line.nextSibling);
  else if (event.key === "ArrowUp" && line) next = buttonOf(line.previousSibling) ?? byId("filter");
  else if (event.key === " " && line && focused === buttonOf(line)) {
    event.preventDefault();
    line.cells[0].firstChild.click();
  }
  if (!next) return;
  event.preventDefault();
  next.focus();
});
document.addEventListener("keyup", (event) => {
  if (event.key === " " && event.target.closest?.("#runs tbody button")) event.preventDefault(); // it has compared, and shows nothing
});
update();
