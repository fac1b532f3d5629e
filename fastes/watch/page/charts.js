// The charts of the page: what they look like. What they show is chosen in watch.js.
"use strict";

const isDark = matchMedia("(prefers-color-scheme: dark)");
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07800", "#56b4e9", "#6a5acd", "#555555"];
const DARK = ["#56b4e9", "#f0803c", "#2fc79a", "#e39cc4", "#e69f00", "#9ecff0", "#a79bff", "#bbbbbb"];

const colours = () => (isDark.matches ? DARK : LIGHT);
const colour = (number) => colours()[number % LIGHT.length];
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

const fromStart = (_, least, most) => [Math.min(least ?? 0, 0), most ?? 1];

// A chart that is drawn anew when its lines change, and else only gets new data.
class Chart {
  constructor(place, height) {
    this.place = document.getElementById(place);
    this.height = height;
    this.plot = null;
    this.kind = "";
    this.hidden = new Set(); // labels of lines that the user has switched off
    new ResizeObserver(() => this.fit()).observe(this.place);
  }

  // lines: {label, colour, width, dash, points, bars}; bands: [upper, lower, colour] by number of line, from 1
  show(data, lines, { xValue, yValue = short, yTick = short, bands = [], xRange = fromStart, yRange = null, xName = "", legend = lines.length > 1 } = {}) {
    this.ranges = { xRange, yRange };
    const kind = JSON.stringify([lines, bands, isDark.matches, xName]);
    if (kind !== this.kind) {
      this.drop();
      this.kind = kind;
      this.plot = new uPlot(this.options(lines, { xValue, yValue, yTick, bands, xRange, yRange, xName, legend }), data, this.place);
    } else this.plot.setData(data);
  }

  options(lines, { xValue, yValue, yTick, bands, xRange, yRange, xName, legend }) {
    const axis = { stroke: ofPage("--soft"), grid: { stroke: ofPage("--line"), width: 1 }, ticks: { stroke: ofPage("--line") } };
    return {
      width: this.width(), height: this.height,
      scales: {
        x: { time: false, range: (...known) => this.ranges.xRange(...known) },
        y: yRange ? { range: (...known) => this.ranges.yRange(...known) } : {},
      },
      axes: [{ ...axis, values: (_, ticks) => ticks.map(xValue), space: 70 },
             { ...axis, values: (_, ticks) => ticks.map(yTick), size: 58 }],
      legend: { show: legend },
      cursor: { drag: { x: false, y: false } },
      bands: bands.map(([upper, lower, fill]) => ({ series: [upper, lower], fill })),
      series: [{ label: xName, value: (_, value) => xValue(value) }, ...lines.map((line) => this.series(line, yValue))],
      hooks: { setSeries: [(plot, number) => this.remember(plot, number)] },
    };
  }

  series(line, yValue) {
    return {
      label: line.label, class: line.unnamed ? "unnamed" : undefined, stroke: line.colour, width: line.width ?? 2, dash: line.dash, spanGaps: true, fill: line.bars && line.colour,
      points: { show: line.points === true, size: 4, fill: line.colour, width: 0 },
      paths: line.points === true ? () => null : line.bars ? uPlot.paths.bars({ size: [0.9, 100] }) : undefined,
      value: (_, value) => yValue(value), show: !this.hidden.has(line.label),
    };
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
    this.plot = null;
    this.kind = "";
  }
}
