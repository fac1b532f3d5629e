// The charts of the page: what they look like, and which part of them is shown. What they show is chosen in watch.js.
"use strict";

const isDark = matchMedia("(prefers-color-scheme: dark)");
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#8c2f7c", "#5c3d00", "#555555"];
const DARK = ["#56b4e9", "#f0803c", "#2fc79a", "#f4c6e2", "#f0e442", "#8f6fe0"];
const FONT = "12px system-ui, sans-serif";
const LEAST_PART = 1e-4; // of the x axis
const LEAST_DRAG = 5; // pixels

const colours = () => (isDark.matches ? DARK : LIGHT);
const colour = (number) => colours()[number % LIGHT.length];
const dash = (number) => (number % (2 * LIGHT.length) < LIGHT.length ? undefined : [7, 4]); // where colours come again
const ofPage = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (size >= unit * 0.9995) return String(+(value / unit).toPrecision(3)) + name;
  return String(+value.toPrecision(size >= 100 ? 4 : 3));
}

// A return, as the tables of FastES write it.
function score(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return Math.abs(value) >= 1e6 ? short(value) : value.toFixed(Math.abs(value) >= 1000 ? 0 : Math.abs(value) >= 100 ? 1 : 2);
}

function inTime(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 59.95) return `${+seconds.toPrecision(3)} s`;
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

// The part of the x axis that all charts over steps or time show.
const zoom = {
  part: null, // [from, to]; null is all of it
  isLog: false,
  charts: [],
  onChange: () => {},

  set(part) {
    this.part = part;
    this.onChange();
  },

  // [from, to] of all there is; null without data
  all() {
    const known = this.charts.map((chart) => chart.all).filter(Boolean);
    return known.length ? [Math.min(...known.map(([from]) => from)), Math.max(...known.map(([, to]) => to))] : null;
  },

  // factor: of the width; shift: to the right, in widths
  move(factor, shift) {
    const all = this.all();
    if (!all) return;
    const [into, back] = this.isLog ? [Math.log, Math.exp] : [(value) => value, (value) => value];
    const [least, most] = all.map(into), [from, to] = (this.part ?? all).map(into);
    const width = (to - from) * factor, middle = (from + to) / 2 + shift * (to - from);
    if (width < LEAST_PART * (most - least)) return;
    const begin = Math.max(least, Math.min(middle - width / 2, most - width));
    this.set(width >= most - least ? null : [back(begin), back(begin + width)]);
  },

  in() { this.move(0.5, 0); },
  out() { this.move(2, 0); },
  left() { if (this.part) this.move(1, -0.25); },
  right() { if (this.part) this.move(1, 0.25); },
  whole() { this.set(null); },
};
const ZOOM_KEYS = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "whole", Escape: "whole" };

function fromStart(_, least, most) {
  if (zoom.isLog) return least > 0 ? [least === most ? least / 10 : least, most] : [1, 10];
  return [Math.min(least ?? 0, 0), most ?? 1];
}

// Ticks of a logarithmic axis: 1 to 9 times each power of ten, or equal steps if it shows less than one.
function logTicks(least, most) {
  const ticks = [];
  if (most / least < 10) {
    const rough = (most - least) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((times) => times * power >= rough);
    for (let number = Math.ceil(least / step); number * step <= most; number += 1) ticks.push(number * step);
    return ticks;
  }
  for (let power = Math.floor(Math.log10(least)); power <= Math.log10(most); power += 1)
    for (let times = 1; times < 10; times += 1) {
      const tick = times * 10 ** power;
      if (tick >= least && tick <= most) ticks.push(tick);
    }
  return ticks;
}

// Those that get a number: the powers of ten, and twice and five times them if there are few.
function namedTicks(ticks) {
  const span = ticks.at(-1) / ticks[0], digits = span < 100 ? [1, 2, 5] : [1];
  return ticks.map((tick) => (span < 10 || digits.includes(Math.round(tick / 10 ** Math.floor(Math.log10(tick) + 1e-9))) ? tick : null));
}

// The number of the value that is nearest to that at a number: lines have their values at different x.
function nearest(values, at) {
  for (let away = 0; away < values.length; away += 1)
    for (const number of [at - away, at + away]) if (isKnown(values[number])) return number;
  return at;
}

const isKnown = (value) => value !== null && value !== undefined;

// A chart that is drawn anew when its lines change, and else only gets new data.
class Chart {
  // zooms: whether it shows the part of the x axis that is zoomed to
  constructor(place, height, zooms = true) {
    this.place = document.getElementById(place);
    this.caption = this.place.parentElement.querySelector("figcaption");
    this.height = height;
    this.plot = null;
    this.kind = "";
    this.all = null; // [from, to] of x
    this.hidden = new Set(); // labels of lines that the user has switched off
    this.zooms = zooms;
    if (zooms) zoom.charts.push(this);
    new ResizeObserver(() => this.fit()).observe(this.place);
  }

  // lines: {label, colour, width, dash, points, bars}; bands: [upper, lower, colour] by number of line, from 1
  show(data, lines, { xValue, yValue = short, yTick = short, bands = [], xRange = fromStart, yRange = null, xName = "", yName = "", legend = true } = {}) {
    this.ranges = { xRange, yRange };
    const kind = JSON.stringify([lines, bands, isDark.matches, xName, zoom.isLog, legend]);
    if (kind !== this.kind) {
      const hadFocus = this.place.contains(document.activeElement);
      this.drop();
      this.kind = kind;
      this.plot = new uPlot(this.options(lines, { xValue, yValue, yTick, bands, yRange, xName, yName, legend }), data, this.place);
      this.open();
      if (hadFocus) this.picture.focus();
    } else this.plot.setData(data);
    queueMicrotask(() => this.describe(data, lines, xName, xValue, yValue)); // after uPlot, which then knows its scales
  }

  describe(data, lines, xName, xValue, yValue) {
    if (!this.plot) return;
    const { min, max } = this.plot.scales.x;
    const newest = lines.flatMap((line, number) => (line.unnamed ? [] : `${line.label} ${yValue(data[number + 1].findLast(isKnown))}`));
    const words = `${this.caption.textContent}, ${xName} from ${xValue(min)} to ${xValue(max)}${this.zooms ? `; newest: ${newest.join(", ")}` : ""}`;
    if (this.picture.getAttribute("aria-label") !== words) this.picture.setAttribute("aria-label", words);
  }

  options(lines, { xValue, yValue, yTick, bands, yRange, xName, yName, legend }) {
    const axis = { stroke: ofPage("--soft"), font: FONT, labelFont: FONT, grid: { stroke: ofPage("--line"), width: 1 }, ticks: { stroke: ofPage("--line") } };
    const isLog = this.zooms && zoom.isLog;
    const ofX = isLog ? { splits: (_plot, _axis, least, most) => logTicks(least, most), filter: (_, ticks) => namedTicks(ticks) } : {};
    const words = (ticks, value) => ticks.map((tick) => (tick === null ? "" : value(tick)));
    return {
      width: this.width(), height: this.height,
      scales: {
        x: { time: false, distr: isLog ? 3 : 1, range: (...known) => this.range(...known) },
        y: yRange ? { range: (...known) => this.ranges.yRange(...known) } : {},
      },
      axes: [{ ...axis, ...ofX, values: (_, ticks) => words(ticks, xValue), space: 70, label: xName, labelSize: 18, size: 36 },
             { ...axis, values: (_, ticks) => words(ticks, yTick), size: yName ? 50 : 58, label: yName || undefined, labelSize: 18 }],
      legend: { show: legend, markers: { dash: (plot, number) => (plot.series[number].dash ? "dashed" : "solid") } },
      cursor: this.cursor(),
      bands: bands.map(([upper, lower, fill]) => ({ series: [upper, lower], fill })),
      series: [{ label: xName, value: (...told) => xValue(this.told(...told)) }, ...lines.map((line) => this.series(line, yValue))],
      hooks: { setSeries: [(plot, number) => this.remember(plot, number)], setSelect: [(plot) => this.select(plot)] },
    };
  }

  // The cross-hairs of all charts over steps or time are at the same x.
  cursor() {
    if (!this.zooms) return { drag: { x: false, y: false } };
    return {
      dataIdx: (plot, line, at) => nearest(plot.data[line], at),
      drag: { x: true, y: false, setScale: false, dist: LEAST_DRAG },
      bind: { dblclick: () => () => zoom.whole() },
      sync: { key: "x", setSeries: false, filters: { pub: (kind) => kind === "mousemove" || kind === "mouseleave" } },
    };
  }

  series(line, yValue) {
    return {
      label: line.label, class: line.unnamed ? "unnamed" : line.points ? "points" : line.bars ? "bars" : undefined,
      stroke: line.colour, width: line.width ?? 2, dash: line.dash, spanGaps: true, fill: line.bars && line.colour,
      points: { show: line.points === true, size: 4, fill: line.colour, width: 0 },
      paths: line.points === true ? () => null : line.bars ? uPlot.paths.bars({ size: [0.9, 100] }) : undefined,
      value: (...told) => yValue(this.told(...told)), show: !this.hidden.has(line.label),
    };
  }

  // What the legend says of a line: the value at the cross-hairs, and without them the newest one, or that of a histogram's highest bar.
  told(plot, value, line, at) {
    if (isKnown(at)) return value;
    return this.zooms ? plot.data[line].findLast(isKnown) : plot.data[line][plot.data[1].indexOf(Math.max(...plot.data[1]))];
  }

  range(plot, least, most) {
    const all = this.ranges.xRange(plot, least, most);
    this.all = isKnown(least) ? all : null;
    return (this.zooms && zoom.part) || all;
  }

  select(plot) {
    const { left, width } = plot.select;
    if (width <= 0) return;
    const part = [left, left + width].map((at) => plot.posToVal(at, "x"));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    zoom.set(part);
  }

  // Zoom by a finger: uPlot hears the mouse alone. A finger that moves up or down scrolls the page, and two enlarge it.
  hearFinger(plot) {
    let from = null; // where it was put
    const at = (event) => Math.min(Math.max(event.clientX - plot.over.getBoundingClientRect().left, 0), plot.over.clientWidth);
    const mark = (left, width) => plot.setSelect({ left, top: 0, width, height: plot.over.clientHeight }, false);
    const hear = (kind, heard) => plot.over.addEventListener(kind, (event) => { if (event.pointerType === "touch") heard(event); });
    const forget = () => {
      from = null;
      mark(0, 0);
    };
    hear("pointerdown", (event) => {
      if (event.isPrimary) from = at(event);
      else forget();
    });
    hear("pointermove", (event) => { if (from !== null) mark(Math.min(from, at(event)), Math.abs(at(event) - from)); });
    hear("pointercancel", forget); // the browser scrolls, or enlarges the page
    hear("pointerup", () => {
      if (from !== null && plot.select.width >= LEAST_DRAG) this.select(plot);
      forget();
    });
  }

  // Make the new plot known to keyboards, fingers and screen readers.
  open() {
    this.picture = this.plot.root.querySelector(".u-wrap");
    this.picture.setAttribute("role", "img");
    if (this.zooms) {
      this.picture.tabIndex = 0;
      this.hearFinger(this.plot);
      this.picture.addEventListener("keydown", (event) => {
        const how = event.ctrlKey || event.metaKey || event.altKey ? undefined : ZOOM_KEYS[event.key];
        if (!how) return;
        event.preventDefault();
        zoom[how]();
      });
    }
    if (this.plot.series.length < 3) return; // nothing to switch off
    for (const name of this.plot.root.querySelectorAll(".u-legend .u-series:not(:first-child) th")) {
      name.tabIndex = 0;
      name.setAttribute("role", "button");
      name.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        name.click();
      });
    }
  }

  remember(plot, number) {
    if (number === null) return;
    const { label, show } = plot.series[number];
    if (show) this.hidden.delete(label);
    else this.hidden.add(label);
  }

  width() { return Math.max(this.place.clientWidth, 200); }
  fit() { if (this.plot && this.plot.width !== this.width()) this.plot.setSize({ width: this.width(), height: this.height }); }
  drop() {
    if (this.plot) this.plot.destroy();
    this.plot = this.all = null;
    this.kind = "";
  }
}
