// Lines over time, drawn by uPlot in the colours of the page.

import { h } from './dom.js';

/* Samples on a chart: ten minutes at one sample every 2 s. */
const SAMPLES_MAX = 300;
const HEIGHT_PX = 190;
/* The shortest time span on the axis. */
const SECONDS_MIN = 60;
const dark = matchMedia('(prefers-color-scheme: dark)');

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* Distances of the marks on an axis of bytes. */
export const BINARY_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/* A chart with a line for each of `names`, and values written by `format`. The axis of values reaches at
   least to `top`; its marks are a multiple of one of `steps` apart, by default of decimal numbers. Returns { element, add(at, values), end() }. */
export function chart(title, names, format, top, steps) {
  const data = [[], ...names.map(() => [])];
  const place = h('div', {});
  const summary = h('p', { class: 'unseen' });
  const element = h('figure', { class: 'chart', 'aria-label': title }, place);
  element.style.margin = '0';
  let plot = null;

  function times() {
    const last = data[0].at(-1) ?? Date.now() / 1000;
    return [Math.min(data[0][0] ?? last, last - SECONDS_MIN), last];
  }

  function draw() {
    plot?.destroy();
    if (place.clientWidth === 0) return;
    const axis = { stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line'), width: 1 }, font: '12px system-ui, sans-serif' };
    plot = new window.uPlot({
      width: place.clientWidth,
      height: HEIGHT_PX,
      cursor: { y: false },
      legend: { live: true },
      scales: {
        x: { range: times },
        y: { range: (_, lowest, highest) => [0, Math.max(highest * 1.1, top)] },
      },
      axes: [
        { ...axis, values: (_, splits) => splits.map((at) => new Date(at * 1000).toLocaleTimeString('en-GB')), space: 90 },
        { ...axis, values: (_, splits) => splits.map(format), size: 72, ...(steps && { incrs: steps }) },
      ],
      series: [
        { label: 'Time', value: (_, at) => (at === null ? '' : new Date(at * 1000).toLocaleTimeString('en-GB')) },
        ...names.map((label, index) => ({ label, stroke: colour(`--series-${index + 1}`), width: 2, spanGaps: true, points: { show: false }, value: (_, value) => (value === null || value === undefined ? '–' : format(value)) })),
      ],
    }, data, place);
  }

  const observer = new ResizeObserver(() => {
    if (plot && place.clientWidth > 0) plot.setSize({ width: place.clientWidth, height: HEIGHT_PX });
    else draw();
  });
  observer.observe(element);
  dark.addEventListener('change', draw);
  element.append(summary);

  return {
    element,
    add(at, values) {
      [at, ...values].forEach((value, index) => {
        data[index].push(Number.isFinite(value) ? value : null);
        if (data[index].length > SAMPLES_MAX) data[index].shift();
      });
      summary.textContent = `Now: ${names.map((name, index) => `${name} ${Number.isFinite(values[index]) ? format(values[index]) : '–'}`).join(', ')}`;
      plot?.setData(data);
      // Without a pointer on the chart, the legend shows the newest values.
      if (plot && !(plot.cursor.left >= 0)) plot.setLegend({ idx: data[0].length - 1 });
    },
    end() {
      observer.disconnect();
      dark.removeEventListener('change', draw);
      plot?.destroy();
    },
  };
}
