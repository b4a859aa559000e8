// Plots, by Apache ECharts, in the colours of the page.

import { connect, init, use } from 'echarts/core'
import { BarChart, BoxplotChart, LineChart, ScatterChart } from 'echarts/charts'
import { AriaComponent, GridComponent, MarkLineComponent, TooltipComponent } from 'echarts/components'
import { LabelLayout } from 'echarts/features'
import { SVGRenderer } from 'echarts/renderers'
import { el } from './dom.js'
import { moment, timeMarks } from './format.js'

use([LineChart, BarChart, BoxplotChart, ScatterChart, GridComponent, TooltipComponent, MarkLineComponent, AriaComponent, LabelLayout, SVGRenderer])

/** The colours of the page, as it is now: light or dark. */
export function colours() {
  const style = getComputedStyle(document.documentElement)
  const get = (name) => style.getPropertyValue('--' + name).trim()
  return {
    text: get('text'), dim: get('dim'), rule: get('rule'), card: get('card'),
    series: Array.from({ length: 8 }, (_, i) => get('c' + i)), of: get,
  }
}

const dark = matchMedia('(prefers-color-scheme: dark)')

/** Calls draw now, and again when the reader changes between light and dark. */
export function inColours(draw) {
  draw()
  dark.addEventListener('change', draw)
}

/** What resolves when all plots are drawn. */
export const drawn = []

/**
 * A plot in a figure: a title, maybe a note, and what option returns for colours and the width, drawn when the figure is on the page.
 * redraw draws it anew.
 */
export function plot({ id, title, note, height = 220, label, option, group, small }) {
  const box = el('div', { class: 'plot', style: `height: ${height}px`, role: 'img', 'aria-label': label ?? title })
  const figure = el('figure', { id, class: small ? 'small' : null },
    el('figcaption', {}, title ? el('h3', {}, title) : null, note ? el('p', { class: 'dim' }, note) : null), box)
  let chart
  const draw = () => chart?.setOption({ ...base(colours()), ...option(colours(), box.clientWidth) }, { notMerge: true })
  figure.start = () => {
    chart = init(box, null, { renderer: 'svg' })
    if (group) {
      chart.group = group
      connect(group)
    }
    drawn.push(new Promise((done) => chart.on('finished', done)))
    inColours(draw)
    let width = box.clientWidth
    new ResizeObserver(() => {
      if (box.clientWidth === width) return
      width = box.clientWidth
      chart.resize()
      draw()
    }).observe(box)
  }
  figure.redraw = draw
  return figure
}

/** Draws the plots that are on the page. */
export const start = (page) => page.querySelectorAll('figure').forEach((f) => f.start?.())

const base = (c) => ({
  animation: false,
  color: c.series,
  textStyle: { fontFamily: 'system-ui, sans-serif', fontSize: 12, color: c.dim },
})

/** The frame of a plot around its marks. */
export const grid = (more) => ({ left: 8, right: 14, top: 12, bottom: 4, outerBoundsMode: 'same', outerBoundsContain: 'axisLabel', ...more })

export const tooltip = (c, more) => ({
  trigger: 'axis',
  confine: true,
  backgroundColor: c.card,
  borderColor: c.rule,
  textStyle: { color: c.text, fontSize: 12 },
  axisPointer: { type: 'line', lineStyle: { color: c.dim, type: 'dashed' } },
  ...more,
})

/** The text of a tooltip: a title, and lines with the colour of what they tell of. */
export function tip(title, lines) {
  const box = el('div', { class: 'tip' }, el('b', {}, title))
  for (const [colour, name, value] of lines) {
    box.append(el('div', {}, el('span', {}, el('i', { class: 'chip', style: `background: ${colour}` }), name), el('b', {}, value)))
  }
  return box
}

/** The top of a scale that most is on: 1, 2, 4 or 8 times a power of ten, so that its quarters are round. */
export function topOf(most) {
  for (let unit = 10 ** Math.floor(Math.log10(Math.max(most, 1e-9)) - 1); ; unit *= 10) {
    for (const n of [1, 2, 4, 6, 8]) if (most <= n * unit) return n * unit
  }
}

/** An axis of values from 0, to the top of a scale that most is on. */
export const values = (c, text, most, parts = 4) => ({
  type: 'value',
  min: 0,
  max: topOf(most),
  interval: topOf(most) / parts,
  axisLabel: { color: c.dim, formatter: text },
  splitLine: { lineStyle: { color: c.rule } },
})

/** An axis of time. */
export function time(c, from, to, width) {
  const { step, text } = timeMarks(to - from, Math.max(2, Math.min(10, width / 60)))
  const marks = []
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) marks.push(t)
  return {
    type: 'value',
    min: from,
    max: to,
    axisLabel: { color: c.dim, formatter: text, customValues: marks, hideOverlap: true },
    axisTick: { show: true, customValues: marks, lineStyle: { color: c.rule } },
    axisLine: { show: true, lineStyle: { color: c.rule } },
    splitLine: { show: false },
  }
}

/** Round marks of a logarithmic scale of seconds between least and most. */
export function timeLevels(least, most) {
  const all = [['s', 1, [1, 2, 5, 10, 30]], ['m', 60, [1, 2, 5, 10, 30]], ['h', 3600, [1, 2, 5, 10]], ['d', 86400, [1, 2, 4, 10, 20, 40, 100, 400, 1000]]]
  const few = [['s', 1, [1, 10]], ['m', 60, [1, 10]], ['h', 3600, [1, 10]], ['d', 86400, [4, 40, 400, 4000]]]
  return (most / least < 300 ? all : few).flatMap(([unit, seconds, counts]) => counts.map((n) => [n + unit, n * seconds]))
}

/** Round marks of a logarithmic scale of numbers between least and most. */
export function levels(least, most, text) {
  const marks = []
  const all = most / least < 100 ? [1, 2, 5] : [1]
  for (let unit = 10 ** Math.floor(Math.log10(least)); unit <= most; unit *= 10) marks.push(...all.map((n) => [text(n * unit), n * unit]))
  return marks
}

/** A logarithmic axis for values whose logarithms are drawn, with those of marks [text, value] that are on it. */
export function logarithmic(c, least, most, marks) {
  const at = marks.filter(([, v]) => v >= least * 0.999 && v <= most * 1.001)
  const text = new Map(at.map(([t, v]) => [Math.log10(v), t]))
  const on = [...text.keys()]
  return {
    type: 'value',
    min: Math.log10(least),
    max: Math.log10(most),
    axisLabel: { color: c.dim, formatter: (v) => text.get(v), customValues: on, hideOverlap: true },
    axisTick: { customValues: on },
    splitLine: { lineStyle: { color: c.rule } },
  }
}

/** An axis of names, all of them where there is room, if need be in two lines. */
export function names(c, all, width) {
  const longest = Math.max(...all.flatMap((n) => n.split('-')).map((part) => part.length + 1))
  const inOne = width > 8 * (all.join('').length + 2 * all.length)
  const inTwo = (width - 50) / all.length > 7 * longest
  return {
    type: 'category',
    data: all,
    axisLabel: { color: c.dim, lineHeight: 15, interval: inOne || inTwo ? 0 : 'auto', formatter: (n) => (inTwo && !inOne ? n.replace('-', '-\n') : n) },
    axisTick: { show: false },
    axisLine: { lineStyle: { color: c.rule } },
  }
}

/** A line of the i-th colour through points [x, y]. */
export const line = (c, i, name, data, more) => ({
  type: 'line',
  name,
  data,
  showSymbol: false,
  lineStyle: { width: 1.4, color: c.series[i % 8] },
  itemStyle: { color: c.series[i % 8] },
  emphasis: { disabled: true },
  ...more,
})

/** A dashed line across a plot, at a value. */
export const mark = (c, at) => ({
  silent: true,
  symbol: 'none',
  label: { show: false },
  lineStyle: { color: c.dim, type: 'dashed', width: 1.2 },
  data: [].concat(at),
})

/** Lines over time, one a run: series is a list of {name, colour, t, y}. */
export function overTime({ id, title, note, height, small, series, text, tipText = text, most = 0, marks, group = 'time' }) {
  const first = Math.min(...series.map((s) => s.t[0] ?? 0))
  const to = Math.max(...series.map((s) => s.t.at(-1) ?? 1), first + 1)
  const from = first < to / 20 ? 0 : first
  const highest = Math.max(most, ...series.flatMap((s) => s.y))
  return plot({
    id, title, note, height, small, group, label: `${title}, over time`,
    option: (c, width) => ({
      grid: grid(),
      xAxis: time(c, from, to, width),
      yAxis: values(c, text, highest, small ? 2 : 4),
      tooltip: tooltip(c, {
        formatter: (at) => tip(moment(at[0].value[0]), at.map((p) => [p.color, p.seriesName, tipText(p.value[1])])),
      }),
      series: series.map((s, i) =>
        line(c, s.colour, s.name, s.t.map((t, k) => [t, s.y[k]]), {
          showSymbol: s.t.length === 1,
          areaStyle: series.length === 1 ? { opacity: 0.12 } : undefined,
          markLine: i === 0 && marks ? mark(c, marks) : undefined,
        })),
    }),
  })
}
