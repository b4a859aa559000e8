// What becomes of idle GPUs, and why: fragmentation by cause.

import { grid, plot, time, tip, tooltip, values } from './charts.js'
import { asTable, el, section } from './dom.js'
import { gpus, moment, short } from './format.js'

// From the bottom of the plots to the top: the name, its key, and its colour in page.css.
const causes = [
  ['stranded', 'stranded', 'c1'], ['CPU', 'cpu', 'c4'], ['topology', 'topology', 'c2'], ['fractional', 'fractional', 'c3'], ['other resources', 'other', 'c5'],
  ['unusable', 'unusable', 'out'], ['allocatable', 'allocatable', 'idle'],
]

/** A plot a shape for one run, and the averages as a table; null without either. */
export function idleGPUs(page) {
  const all = page.runs.filter((r) => r.summary.fragmentation)
  if (all.length === 0) return null
  const one = page.runs.length === 1
  const shapes = one ? (page.runs[0].idle ?? []) : []
  const most = Math.max(2, ...shapes.map((s) => highest(s)))
  const run = (r) => (one ? [] : [r.name])
  return section('idle', 'Idle GPUs by cause',
    el('p', { class: 'dim' }, 'What becomes of the idle GPUs of all nodes, for pods of a shape: 8g64c requests 8 GPUs and 64 cores. 128x12c is a job of 128 GPUs ' +
      'with 12 cores for each, in pods of 8 GPUs within one leaf group: topology is what pods could use, and too little of it is in each group. ' +
      'Stranded GPUs are too few on their node, on others the CPU is used up, fractional ones are parts of shared GPUs. Unusable ones are cordoned, tainted or unhealthy.'),
    shapes.length ? el('ul', { class: 'legend' }, causes.filter(([, key]) => shapes.some((s) => s[key])).map(([name, , colour]) =>
      el('li', {}, el('i', { class: 'chip', style: `background: var(--${colour})` }), name))) : null,
    el('div', { class: 'grid small' }, shapes.map((s, i) => stacked(`idle-${i}`, s, page.runs[0].queue_times ?? [], most))),
    asTable('Idle GPUs by cause', ['shape', ...(one ? [] : ['run']), 'idle', ...causes.map(([name]) => name)],
      all.flatMap((r) => r.summary.fragmentation.shapes.map((s) => [s.shape, ...run(r), short(s.idle_gpus), ...causes.map(([, key]) => short(s[key + '_gpus'] ?? 0))]))),
    asTable('Jobs that would fit', ['job', ...(one ? [] : ['run']), 'within one leaf group', 'across'],
      all.flatMap((r) => r.summary.fragmentation.jobs.map((j) => [j.job, ...run(r), short(j.within), short(j.across)]))))
}

const highest = (s) => Math.max(0, ...(s.allocatable ?? s.stranded ?? s.unusable ?? []).map((_, i) => causes.reduce((sum, [, key]) => sum + (s[key]?.[i] ?? 0), 0)))

/** The causes of a shape over time, one on top of the other. */
function stacked(id, s, t, most) {
  return plot({
    id, title: s.shape, height: 130, small: true, group: 'idle', label: `Idle GPUs for pods of ${s.shape}, by cause, over time`,
    option: (c, width) => ({
      grid: grid(),
      xAxis: time(c, 0, Math.max(t.at(-1) ?? 1, 1), width),
      yAxis: values(c, short, most, 2),
      tooltip: tooltip(c, { formatter: (at) => tip(moment(at[0].value[0]), at.map((p) => [p.color, p.seriesName, gpus(p.value[1]) + ' GPUs'])) }),
      series: causes.filter(([, key]) => s[key]).map(([name, key, colour]) => ({
        type: 'line', name, stack: 'idle', showSymbol: t.length === 1, data: t.map((at, i) => [at, s[key][i]]), emphasis: { disabled: true },
        lineStyle: { width: 0 }, itemStyle: { color: c.of(colour) }, areaStyle: { color: c.of(colour), opacity: 0.85 },
      })),
    }),
  })
}
