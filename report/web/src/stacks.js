// Sums by their parts, as bars or over time.

import { grid, names, plot, time, tip, tooltip, topOf, values } from './charts.js'
import { asTable, legend, section } from './dom.js'
import { moment, short } from './format.js'

/** The part of the page about sums by their parts; null without any. */
export function stacks(all) {
  if (!all?.length) return null
  return section('stacks', 'By parts', ...all.flatMap((s, i) => [
    legend(s.parts.map((p) => p.name)),
    s.names ? bars(s, i) : hours(s, i),
    s.names ? asTable(s.title, ['', ...s.parts.map((p) => p.name)], s.names.map((n, k) => [n, ...s.parts.map((p) => short(p.values[k]))])) : null,
  ]))
}

const sum = (s, i) => s.parts.reduce((n, p) => n + p.values[i], 0)
const most = (s) => Math.max(...s.parts[0].values.map((_, i) => sum(s, i)))
const told = (s, at) => at.map((p) => [p.color, p.seriesName, short(Array.isArray(p.value) ? p.value[1] : p.value) + ' ' + s.unit])

/** A bar for each sum. */
function bars(s, i) {
  return plot({
    id: 'stack-' + i, title: `${s.title}, in ${s.unit}`, note: s.note, height: 40 + 28 * s.names.length,
    option: (c) => ({
      grid: grid(),
      yAxis: { ...names(c, s.names, 1e9), inverse: true, axisLabel: { color: c.text, interval: 0 } },
      xAxis: values(c, short, topOf(most(s))),
      tooltip: tooltip(c, { axisPointer: { type: 'shadow' }, formatter: (at) => tip(s.names[at[0].dataIndex], told(s, at)) }),
      series: s.parts.map((p, k) => ({
        type: 'bar', name: p.name, stack: 'sum', barWidth: 15, data: p.values, emphasis: { disabled: true }, itemStyle: { color: c.series[k % 8] },
      })),
    }),
  })
}

/** The sums of the hours, as areas. */
function hours(s, i) {
  const at = (p) => p.values.flatMap((y, h) => [[h * 3600, y], [(h + 1) * 3600 - 1, y]])
  return plot({
    id: 'stack-' + i, title: `${s.title}, in ${s.unit}`, note: s.note, height: 260, label: `${s.title}, over time`,
    option: (c, width) => ({
      grid: grid(),
      xAxis: time(c, 0, s.parts[0].values.length * 3600, width),
      yAxis: values(c, short, most(s)),
      tooltip: tooltip(c, { formatter: (on) => tip(moment(on[0].value[0]), told(s, on)) }),
      series: s.parts.map((p, k) => ({
        type: 'line', name: p.name, stack: 'sum', showSymbol: false, data: at(p), emphasis: { disabled: true },
        lineStyle: { width: 0 }, itemStyle: { color: c.series[k % 8] }, areaStyle: { color: c.series[k % 8], opacity: 0.85 },
      })),
    }),
  })
}
