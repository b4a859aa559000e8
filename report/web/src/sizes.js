// Waits and distances by the GPUs of the job.

import { grid, line, logarithmic, names, plot, timeLevels, tip, tooltip, topOf } from './charts.js'
import { asTable, choice, el, legend, section } from './dom.js'
import { count, duration } from './format.js'

const entry = (list, name) => list?.find((e) => e.class === name)
const classesOf = (page, key) => page.classes.filter((c) => page.runs.some((r) => entry(r.summary[key], c)))

const statistics = [['mean', 'mean_s'], ['median', 'p50_s'], ['90th percentile', 'p90_s'], ['99th percentile', 'p99_s']]

const level = (s) => Math.log10(Math.max(s, 1))

/** Waiting time by job size (JWTD). */
export function waitsBySize(page) {
  const classes = classesOf(page, 'jwtd')
  if (classes.length === 0) return null
  const one = page.runs.length === 1
  let chosen = 0
  // One run shows its statistics side by side; several show one of them each.
  const bars = () =>
    one
      ? [1, 0, 2, 3].map((k, i) => ({ name: statistics[k][0], colour: i, run: page.runs[0], key: statistics[k][1] }))
      : page.runs.map((r, i) => ({ name: r.name, colour: i, run: r, key: statistics[chosen][1] }))
  const wait = (bar, c) => entry(bar.run.summary.jwtd, c)?.[bar.key]
  const figure = plot({
    id: 'jwtd', height: 260, title: 'Waiting time by GPUs of the job (JWTD)',
    note: 'From submission to the first start. The scale is logarithmic from one second: shorter waits have no bar.',
    option: (c, width) => {
      const all = bars()
      const most = Math.max(60, ...all.flatMap((b) => classes.map((k) => wait(b, k) ?? 0)))
      return {
        grid: grid(),
        xAxis: names(c, classes, width),
        yAxis: logarithmic(c, 1, most * 1.2, timeLevels(1, most)),
        tooltip: tooltip(c, {
          axisPointer: { type: 'shadow' },
          formatter: (at) => {
            const k = classes[at[0].dataIndex]
            const jobs = Math.max(...page.runs.map((r) => entry(r.summary.jwtd, k)?.jobs ?? 0))
            return tip(`${k} GPUs, ${count(jobs)} jobs`, at.filter((p) => p.data.wait !== undefined).map((p) => [p.color, p.seriesName, duration(p.data.wait)]))
          },
        }),
        series: all.map((b) => ({
          type: 'bar',
          name: b.name,
          itemStyle: { color: c.series[b.colour % 8] },
          barGap: '10%',
          barCategoryGap: '24%',
          emphasis: { disabled: true },
          data: classes.map((k) => ({ value: wait(b, k) === undefined ? null : level(wait(b, k)), wait: wait(b, k) })),
        })),
      }
    },
  })
  const header = ['GPUs', 'jobs', ...page.runs.flatMap((r) => statistics.map(([name]) => (one ? name : `${r.name}, ${name}`)))]
  const rows = classes.map((k) => [k, count(Math.max(...page.runs.map((r) => entry(r.summary.jwtd, k)?.jobs ?? 0))),
    ...page.runs.flatMap((r) => statistics.map(([, key]) => (entry(r.summary.jwtd, k) ? duration(entry(r.summary.jwtd, k)[key]) : '')))])
  return section('waits', 'Waiting time by size of the job',
    one ? null : choice('Statistic of the waiting times', statistics.map((s) => s[0]), (i) => {
      chosen = i
      figure.redraw()
    }),
    legend(bars().map((b) => b.name)), figure, asTable('Waiting time by GPUs of the job', header, rows))
}

/** Nodes and leaf groups used, over the fewest possible (JTTED). */
export function distances(page) {
  const classes = classesOf(page, 'jtted')
  if (classes.length === 0) return null
  const ratio = (v) => v.toFixed(3)
  const chart = (id, title, key) => {
    const largest = Math.max(1.2, ...page.runs.flatMap((r) => (r.summary.jtted ?? []).map((e) => e[key])))
    // The scale is from 1 as long as that gives round marks.
    const least = largest > 5 ? 0 : 1
    const most = topOf(largest - least)
    return plot({
      id, title,
      option: (c, width) => ({
        grid: grid(),
        xAxis: names(c, classes, width),
        yAxis: {
          type: 'value',
          min: least,
          max: least + most,
          interval: most / 4,
          axisLabel: { color: c.dim, formatter: (v) => +v.toFixed(2) + '×' },
          splitLine: { lineStyle: { color: c.rule } },
        },
        tooltip: tooltip(c, {
          formatter: (at) => tip(`${classes[at[0].dataIndex]} GPUs`, at.filter((p) => p.value != null).map((p) => [p.color, p.seriesName, ratio(p.value) + '×'])),
        }),
        series: page.runs.map((r, i) =>
          line(c, i, r.name, classes.map((k) => entry(r.summary.jtted, k)?.[key] ?? null), {
            showSymbol: true,
            symbol: 'circle',
            symbolSize: 7,
            clip: false,
            lineStyle: { width: 1.2, color: c.series[i % 8], opacity: 0.7 },
          })),
      }),
    })
  }
  const header = ['GPUs', ...page.runs.flatMap((r) => ['nodes', 'leaf groups'].map((n) => (page.runs.length === 1 ? n : `${r.name}, ${n}`)))]
  const rows = classes.map((k) => [k, ...page.runs.flatMap((r) => {
    const e = entry(r.summary.jtted, k)
    return e ? [ratio(e.node_ratio), ratio(e.group_ratio)] : ['', '']
  })])
  return section('distances', 'Nodes and leaf groups used, to the fewest possible (JTTED)',
    page.runs.length > 1 ? legend(page.runs.map((r) => r.name)) : null,
    el('div', { class: 'grid' }, chart('jtted-nodes', 'Nodes used to the fewest possible', 'node_ratio'),
      chart('jtted-groups', 'Leaf groups used to the fewest possible', 'group_ratio')),
    asTable('Nodes and leaf groups used to the fewest possible, by GPUs of the job', header, rows))
}
