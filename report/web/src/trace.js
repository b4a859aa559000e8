// The page about a workload.

import { grid, levels, line, logarithmic, names, plot, time, timeLevels, tip, tooltip, topOf, values } from './charts.js'
import { asTable, el, legend, section } from './dom.js'
import { count, duration, percent, short } from './format.js'

/** The parts of the page. */
export function trace({ name, summary: s }) {
  return [header(name, s), ...workload(s)]
}

/** The parts about what is in a workload. */
export const workload = (s) => [tiles(s), demand(s), arrivals(s), spreads(s), shares(s), allocation(s)].filter((part) => part)

function header(name, s) {
  const facts = [`${count(s.jobs)} jobs`, `submitted from ${duration(s.first_s)} to ${duration(s.last_s)}`, s.endless ? `${count(s.endless)} without an end` : null]
  return el('header', {}, el('h1', {}, name), el('p', { class: 'dim' }, facts.filter(Boolean).join(' · ')))
}

function tiles(s) {
  const tile = (name, value, note) => el('div', { class: 'tile' }, el('span', {}, name), el('b', {}, value), el('span', { class: 'dim' }, note))
  return el('div', { class: 'tiles', id: 'headline' },
    tile('Jobs', count(s.jobs), `${percent(s.all.hp_job_share)} HP`),
    tile('GPU-hours', short(s.gpu_hours), `${percent(s.all.hp_gpu_share)} HP`),
    tile('GPUs wanted', short(s.all.mean_gpus ?? 0), `at most ${short(s.all.peak_gpus ?? 0)} in an hour`),
    tile('Duration', duration(s.duration_s.p50), `mean ${duration(s.duration_s.mean)}, p99 ${duration(s.duration_s.p99)}`),
    tile('GPUs of a job', short(s.gpus.p50), `mean ${short(s.gpus.mean)}, p99 ${short(s.gpus.p99)}`),
    tile('CPU cores a GPU', short(s.cores_per_gpu), 'over GPU-time'),
    tile('Gangs', count(s.gangs), `${count(s.pods)} pods in all jobs`),
    tile('Queues', count(s.all_queues), s.queues.length ? `the largest has ${percent(s.queues[0].gpu_share)} of the GPU-hours` : ''))
}

/** A colour for each kind, the same in all plots. */
const kinds = ['training', 'inference', 'batch', 'dev']
const colourOf = (kind) => Math.max(0, kinds.indexOf(kind))

/** GPUs wanted and asked for over the hours of a week. */
function demand(s) {
  if (!s.all.peak_gpus || !s.week?.length) return null
  const hours = s.week[0].running.length
  const lines = (id, title, note, key) =>
    plot({
      id, title, note,
      option: (c, width) => ({
        grid: grid(),
        xAxis: time(c, 0, hours * 3600, width),
        yAxis: values(c, short, Math.max(1, ...s.week[0][key].map((_, h) => s.week.reduce((sum, w) => sum + w[key][h], 0)))),
        tooltip: tooltip(c, {
          formatter: (at) => {
            const h = at[0].value[0] / 3600 - 0.5
            return tip(`day ${Math.floor(h / 24) + 1}, ${String(h % 24).padStart(2, '0')}:00`, at.map((p) => [p.color, p.seriesName, short(p.value[1])]))
          },
        }),
        series: s.week.map((w) =>
          line(c, colourOf(w.kind), w.kind, w[key].map((y, h) => [(h + 0.5) * 3600, y]), { stack: 'all', areaStyle: { opacity: 0.25 } })),
      }),
    })
  return section('week', 'Demand over the week', legend(s.week.map((w) => w.kind), (i) => colourOf(s.week[i].kind)),
    el('div', { class: 'grid' },
      lines('wanted', 'GPUs wanted', 'What jobs would hold if none waited; the kinds on top of each other.', 'running'),
      lines('asked', 'GPUs asked for in an hour', 'Of the jobs submitted in that hour of the week.', 'submitted')))
}

function arrivals(s) {
  const hours = s.arrivals_by_hour.map((_, h) => String(h).padStart(2, '0'))
  return section('arrivals', 'Jobs submitted by hour of the day',
    plot({
      id: 'hours', title: 'Jobs submitted', height: 180,
      option: (c, width) => ({
        grid: grid(),
        xAxis: names(c, hours, width),
        yAxis: values(c, short, Math.max(4, ...s.arrivals_by_hour)),
        tooltip: tooltip(c, { axisPointer: { type: 'shadow' }, formatter: (at) => tip(`${at[0].name}:00`, [[at[0].color, 'jobs', count(at[0].value)]]) }),
        series: [bar(c, 0, 'jobs', s.arrivals_by_hour)],
      }),
    }))
}

const bar = (c, i, name, data, more) => ({
  type: 'bar', name, data, itemStyle: { color: c.series[i % 8] }, barGap: '10%', barCategoryGap: '30%', emphasis: { disabled: true }, ...more,
})

const quantiles = ['p10', 'p25', 'p50', 'p75', 'p90']

/** How durations and sizes are distributed, as boxes. */
function spreads(s) {
  const all = [
    ['duration', 'Duration', s.duration_s, duration], ['gpus', 'GPUs of a job', s.gpus, short],
    ['cores', 'CPU cores of a job', s.cores, short], ['ratio', 'CPU cores a GPU of a task', s.task_cores_per_gpu, short],
  ].filter(([, , spread]) => spread?.max > 0)
  if (all.length === 0) return null
  const rowsOf = (x) => [{ ...x, name: 'all' }, ...(x.by_kind ?? []), ...(x.by_class ?? []), ...(x.by_size ?? []).map((r) => ({ ...r, name: r.name + ' GPUs' }))]
  const boxes = ([id, title, spread, text]) => {
    const rows = rowsOf(spread)
    const least = Math.min(...rows.map((r) => r.p10).filter((v) => v > 0), spread.max)
    const most = Math.max(...rows.map((r) => r.p90), least * 10)
    const level = (v) => Math.log10(Math.max(v, least))
    const marks = text === duration ? timeLevels(least, most) : levels(least, most, short)
    return plot({
      id: 'spread-' + id, title, height: 36 + 22 * rows.length,
      option: (c) => ({
        grid: grid(),
        yAxis: { ...names(c, rows.map((r) => r.name), 1e9), inverse: true },
        xAxis: logarithmic(c, least, most, marks),
        tooltip: tooltip(c, {
          trigger: 'item',
          formatter: (p) => tip(rows[p.dataIndex].name, [...quantiles, 'p99', 'max', 'mean'].map((q) => [c.dim, q, text(rows[p.dataIndex][q])])),
        }),
        series: [{
          type: 'boxplot', name: title, boxWidth: [6, 14], emphasis: { disabled: true },
          data: rows.map((r) => quantiles.map((q) => level(r[q]))),
          itemStyle: { color: c.of('part1'), borderColor: c.series[0], borderWidth: 1.4 },
        }],
      }),
    })
  }
  const header = ['', ...quantiles, 'p99', 'max', 'mean']
  return section('spreads', 'How sizes and durations are distributed',
    el('p', { class: 'dim' }, 'Boxes go from the 25th to the 75th percentile, with a line at the median; the lines beside them from the 10th to the 90th. Scales are logarithmic.'),
    el('div', { class: 'grid' }, all.map(boxes)),
    all.map(([, title, spread, text]) => asTable(title, header, rowsOf(spread).map((r) => [r.name, ...header.slice(1).map((q) => text(r[q]))]))))
}

// A plot shows so many rows of a list that is longer by more than a few, the tables all.
const rowsShown = 12
const few = 3

/** Jobs and GPU-hours by what jobs are. */
function shares(s) {
  const all = [['sizes', 'By GPUs of the job', s.sizes], ['kinds', 'By kind', s.kinds], ['classes', 'By class', s.classes],
    ['models', 'By GPU model', s.gpu_models], ['outcomes', 'By outcome', s.outcomes],
    ['by-queue', 'By queue', s.queues]]
    .filter(([, , list]) => list?.length)
  const chart = ([id, name, whole]) => {
    const list = whole.length > rowsShown + few ? whole.slice(0, rowsShown) : whole
    const all = id === 'by-queue' ? s.all_queues : whole.length
    const title = list.length < all ? `${name}: ${list.length} of ${count(all)}` : name
    const top = topOf(Math.max(...list.flatMap((r) => [r.job_share, r.gpu_share]), 0.04))
    return plot({
      id, title, height: 44 + 24 * list.length,
      option: (c) => ({
        grid: grid(),
        yAxis: { ...names(c, list.map((r) => r.name), 1e9), inverse: true, axisLabel: { color: c.dim, interval: 0, width: 130, overflow: 'truncate' } },
        xAxis: values(c, (v) => +(v * 100).toPrecision(3) + '%', top),
        tooltip: tooltip(c, {
          axisPointer: { type: 'shadow' },
          formatter: (at) => {
            const r = list[at[0].dataIndex]
            return tip(r.name, [[c.series[0], 'jobs', `${count(r.jobs)}, ${percent(r.job_share)}`], [c.series[1], 'GPU-hours', `${short(r.gpu_hours)}, ${percent(r.gpu_share)}`],
              [c.dim, 'HP part of the GPU-hours', percent(r.hp_gpu_share)]])
          },
        }),
        series: [bar(c, 0, 'jobs', list.map((r) => r.job_share)), bar(c, 1, 'GPU-hours', list.map((r) => r.gpu_share))],
      }),
    })
  }
  const header = ['', 'jobs', 'of all', 'GPU-hours', 'of all', 'HP part of jobs', 'of GPU-hours', 'mean GPUs wanted', 'most']
  return section('shares', 'Jobs and GPU-hours', legend(['part of the jobs', 'part of the GPU-hours']),
    el('div', { class: 'columns' }, all.filter(([, , list]) => list.length > 1).map(chart)),
    all.map(([, title, list]) => asTable(title, header, list.map((r) =>
      [r.name, count(r.jobs), percent(r.job_share), short(r.gpu_hours), percent(r.gpu_share), percent(r.hp_job_share), percent(r.hp_gpu_share),
        r.mean_gpus ? short(r.mean_gpus) : '', r.peak_gpus ? short(r.peak_gpus) : '']))))
}

/** Demand as parts of a cluster. */
function allocation(s) {
  if (!s.allocation?.length) return null
  const list = s.allocation
  const top = topOf(Math.max(1, ...list.map((a) => a.all)))
  return section('allocation', 'Demand as part of the cluster', legend(['HP', 'LP'], (i) => i),
    plot({
      id: 'allocated', title: 'GPUs wanted on average, as part of those there are', height: 44 + 26 * list.length,
      option: (c) => ({
        grid: grid(),
        yAxis: { ...names(c, list.map((a) => a.name), 1e9), inverse: true },
        xAxis: values(c, (v) => +(v * 100).toPrecision(3) + '%', top),
        tooltip: tooltip(c, {
          axisPointer: { type: 'shadow' },
          formatter: (at) => {
            const a = list[at[0].dataIndex]
            return tip(`${a.name}: ${count(a.nodes)} nodes, ${count(a.gpus)} GPUs`, [[c.series[0], 'HP', percent(a.hp)], [c.series[1], 'HP and LP', percent(a.all)]])
          },
        }),
        series: [bar(c, 0, 'HP', list.map((a) => a.hp), { stack: 'all' }), bar(c, 1, 'LP', list.map((a) => Math.max(0, a.all - a.hp)), { stack: 'all' })],
      }),
    }))
}
