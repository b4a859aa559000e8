// The page about a published experiment, run again.

import { grid, names, plot, tip, tooltip, topOf, values } from './charts.js'
import { el, section, table } from './dom.js'
import { count } from './format.js'
import { lists } from './lists.js'
import { stacks } from './stacks.js'
import { workload } from './trace.js'

/** The parts of the page. */
export function experiment(e) {
  const figures = e.figures ?? []
  return [
    header(e), comparison(figures), tradeOffs(e.trade_offs ?? []), figureTable(figures, e.theirs ?? 'theirs'), ...lists(e.lists ?? []), stacks(e.stacks), untold(figures), notes(e),
    ...(e.workload ? [el('h2', { class: 'part' }, 'What the workload is like'), ...workload(e.workload)] : []),
  ].filter((part) => part)
}

/** What was run, how many figures are in their bands, and where the runs are. */
function header(e) {
  const judged = [...(e.figures ?? []).filter((f) => f.judged || !f.within).map((f) => f.within), ...(e.lists ?? []).flatMap((l) => l.fillings).filter((f) => f.verdict).map((f) => f.verdict === 'pass')]
  const out = judged.filter((within) => !within).length
  const all = judged.length
  return el('header', {},
    el('h1', {}, e.name),
    el('p', {}, e.title, '. ', all ? el('b', { class: out ? 'bad' : 'good', id: 'verdict' }, e.tally ?? (out ? `${out} of ${all} figures are out of their bands.` : `All ${all} figures are in their bands.`)) : null),
    el('p', { class: 'dim' }, e.caption),
    e.runs ? el('nav', {}, el('a', { href: e.runs }, 'The runs of the first seed, compared')) : null)
}

// Where the band lies on the scale of a row, which is from 0 to 2.
const low = 0.5
const high = 1.5

/**
 * The scale of a figure: what maps its values to places, and where its band is. A band with two bounds is from low to high, one with
 * a bound begins or ends there, with the other values in it; one that is a single value is in the middle.
 */
function scale(f) {
  const inside = [f.ours, f.theirs ?? f.ours]
  const clamp = (x) => Math.min(1.94, Math.max(0.06, x))
  if (f.low !== null && f.high !== null) {
    if (f.low === f.high) return { at: (v) => (v === f.low ? 1 : v < f.low ? 0.06 : 1.94), band: [0.985, 1.015] }
    return { at: (v) => clamp(low + (v - f.low) / (f.high - f.low)), band: [low, high] }
  }
  const bound = f.low ?? f.high
  const far = Math.max(...inside.map((v) => Math.abs(v - bound)), Math.abs(bound) * 0.1, 1e-9)
  const at = (v) => clamp((f.low !== null ? low : high) + (v - bound) / far)
  return { at, band: f.low !== null ? [low, 2] : [0, high] }
}

/** The figures to compare: each in a row with a scale of its own. */
function comparison(figures) {
  const all = figures.filter((f) => f.theirs !== null && (f.low !== null || f.high !== null))
  if (all.length === 0) return null
  const parts = all.length > 20 ? [all.slice(0, Math.ceil(all.length / 2)), all.slice(Math.ceil(all.length / 2))] : [all]
  const key = [['band', 'the band'], ['theirs', 'theirs'], ['ours', 'ours'], ...(all.some((f) => !f.within) ? [['ours wrong', 'ours, out of the band']] : [])]
  return section('compared', 'Ours beside theirs',
    el('p', { class: 'dim' }, 'Each row has a scale of its own, on which its band is as wide as the others; one that ends at the edge of the plot is open there, and what lies far outside is drawn at the edge. At the right is ours, and theirs in brackets.'),
    el('ul', { class: 'legend' }, key.map(([name, text]) => el('li', {}, el('i', { class: 'mark ' + name }), text))),
    el('div', { class: 'grid' }, parts.map((part, i) => strips(part, i))))
}

function strips(list, part) {
  const rows = list.map((f) => ({ f, ...scale(f) }))
  return plot({
    id: 'strips-' + part, title: '', label: 'Ours beside theirs', height: 16 + 25 * rows.length,
    option: (c, width) => {
      const wide = width > 640
      const axis = (text, more) => ({
        type: 'category', inverse: true, data: list.map(text), axisTick: { show: false }, axisLine: { show: false },
        axisLabel: { color: c.dim, interval: 0, overflow: 'truncate', ...more },
      })
      const place = { barWidth: 13, stack: 'band', silent: true, emphasis: { disabled: true }, type: 'bar' }
      const dots = { type: 'scatter', emphasis: { disabled: true }, clip: false }
      return {
        grid: grid({ top: 4 }),
        xAxis: { type: 'value', min: 0, max: 2, show: false },
        yAxis: [
          axis((f) => f.name, { width: wide ? Math.min(360, width * 0.4) : width * 0.5, color: c.text }),
          ...(wide ? [{ ...axis((f) => `${apart(f.ours_text)}  (${apart(f.theirs_text)})`, {}), position: 'right' }] : []),
        ],
        tooltip: tooltip(c, {
          axisPointer: { type: 'shadow' },
          formatter: (at) => {
            const f = list[at[0].dataIndex]
            return tip(f.name, [[c.text, 'theirs', apart(f.theirs_text)], [f.within ? c.series[0] : c.series[7], 'ours', apart(f.ours_text)], [c.of('idle'), 'band', f.how]])
          },
        }),
        series: [
          { ...place, data: rows.map((r) => r.band[0]), itemStyle: { color: 'transparent' } },
          { ...place, data: rows.map((r) => r.band[1] - r.band[0]), itemStyle: { color: c.of('idle') } },
          { ...dots, data: rows.map((r, i) => [r.at(r.f.theirs), i]), symbol: 'rect', symbolSize: [2.5, 17], itemStyle: { color: c.text, opacity: 1 } },
          {
            ...dots,
            data: rows.map((r, i) => ({ value: [r.at(r.f.ours), i], itemStyle: { color: r.f.within ? c.series[0] : c.series[7], opacity: 1 } })),
            symbol: 'circle', symbolSize: 10, itemStyle: { borderColor: c.card, borderWidth: 1 },
          },
        ],
      }
    },
  })
}

function figureTable(figures, theirs) {
  if (figures.length === 0) return null
  const name = (f) => ({ class: 'wrap', text: el('div', {}, f.name, f.note ? el('div', { class: 'note' }, f.note + '.') : null) })
  const verdict = (f) => (f.within && !f.judged ? '' : f.within ? { class: 'good', text: f.note ? 'yes, see note' : 'yes' } : { class: 'bad', text: 'no' })
  return section('figures', 'The figures', table('The figures', ['figure', theirs, 'ours', 'difference', 'band', 'in band'],
    figures.map((f) => [name(f), apart(f.theirs_text), apart(f.ours_text), f.difference_text, { class: 'wrap', text: f.how }, verdict(f)])))
}

/** Figures of which nothing is published: a plot for each unit. */
function untold(figures) {
  const none = figures.filter((f) => f.theirs === null)
  const units = [...new Set(none.map((f) => f.unit))].map((unit) => [unit, none.filter((f) => f.unit === unit)])
  if (units.length === 0) return null
  const bars = ([unit, list], i) => plot({
    id: 'untold-' + i, title: `Ours${unit ? ', in ' + unit : ''}`, height: 52 + 25 * list.length,
    option: (c, width) => ({
      grid: grid(),
      yAxis: { ...names(c, list.map((f) => f.name), 1e9), inverse: true, axisLabel: { color: c.text, interval: 0, width: Math.min(360, width * 0.5), overflow: 'truncate' } },
      xAxis: values(c, (v) => String(+v.toPrecision(3)), topOf(Math.max(...list.map((f) => f.ours)))),
      tooltip: tooltip(c, { axisPointer: { type: 'shadow' }, formatter: (at) => tip(list[at[0].dataIndex].name, [[c.series[0], 'ours', list[at[0].dataIndex].ours_text]]) }),
      series: [{ type: 'bar', barWidth: 13, data: list.map((f) => f.ours), itemStyle: { color: c.series[0] }, emphasis: { disabled: true } }],
    }),
  })
  return section('untold', 'Of which nothing is published as a figure', units.map(bars))
}

/** What settings gain and cost, a plot each: the points of a kind are joined in their order. */
function tradeOffs(all) {
  if (all.length === 0) return null
  const kinds = [...new Set(all.flatMap((t) => t.lines.map((l) => l.name)))]
  return section('trade-offs', 'What the settings gain and cost',
    el('p', { class: 'dim' }, 'Each point is a setting. The scales do not begin at 0.'),
    el('div', { class: 'grid' }, all.map((t, i) => tradeOff(t, i, kinds))))
}

function tradeOff(t, i, kinds) {
  const points = t.lines.flatMap((l) => l.points)
  const figure = (v) => String(+v.toPrecision(4))
  const axis = (c, name, of, more) => ({
    type: 'value', ...scaleOf(points.map(of)), name, nameLocation: 'middle', nameTextStyle: { color: c.dim },
    axisLabel: { color: c.dim, formatter: figure }, splitLine: { lineStyle: { color: c.rule } }, ...more,
  })
  return plot({
    id: 'trade-off-' + i, title: t.title, note: `Up: ${t.y}`, height: 300, label: `${t.title}: ${t.y}, by ${t.x}`,
    option: (c) => ({
      grid: grid({ top: 22, bottom: 26, right: 30 }),
      xAxis: axis(c, t.x, (p) => p.x, { nameGap: 28 }),
      yAxis: axis(c, '', (p) => p.y),
      tooltip: tooltip(c, {
        trigger: 'item',
        formatter: (at) => tip(`${at.seriesName}, ${at.data.name}`, [[at.color, t.x, figure(at.value[0])], [at.color, t.y, figure(at.value[1])]]),
      }),
      series: t.lines.map((l) => ({
        type: 'line', name: l.name, symbol: 'circle', symbolSize: 9, showSymbol: true, color: c.series[kinds.indexOf(l.name)], lineStyle: { width: 1.5 },
        data: l.points.map((p) => ({ value: [p.x, p.y], name: p.label })),
        label: { show: true, position: 'top', color: c.text, formatter: (at) => at.data.name },
        labelLayout: { hideOverlap: true, moveOverlap: 'shiftY' }, emphasis: { disabled: true },
      })),
    }),
  })
}

/** A scale with round ends and marks around all values, which need not have 0. */
function scaleOf(all) {
  const least = Math.min(...all)
  const most = Math.max(...all)
  const step = topOf(Math.max(most - least, Math.abs(most) * 1e-3, 1e-9)) / 4
  return { min: +((Math.floor(least / step - 0.2)) * step).toPrecision(12), max: +((Math.ceil(most / step + 0.2)) * step).toPrecision(12), interval: step }
}

/** A text with the thousands of its large number apart. */
const apart = (text) => text.trim().replace(/\d{5,}/, (n) => count(+n))

const notes = (e) => (e.notes?.length ? section('notes', 'Notes', e.notes.map((n) => el('p', {}, n))) : null)
