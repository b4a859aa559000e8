// How full a cluster gets with the pods of each list, by policy.

import { grid, line, names, plot, tip, tooltip } from './charts.js'
import { asTable, choice, el, legend, section, table } from './dom.js'

const two = (x) => x.toFixed(2)
const ours = (f) => f.curve.at(-1)
const theirs = (f) => f.published || f.goal || null
const colour = (c, i) => c.series[i % 8]

/** The parts of the page about lists of pods; none without lists. */
export function lists(all) {
  if (all.length === 0) return []
  const policies = all[0].fillings.map((f) => f.policy)
  return [oneList(all, policies), all.length > 1 ? allLists(all, policies) : null]
}

/** The foot of a scale that least is on, in per cent. */
const foot = (least) => Math.max(0, Math.floor((least - 2) / 5) * 5)

const percents = (c, min, max, more) => ({
  type: 'value', min, max, interval: max - min > 50 ? 10 : 5, axisLabel: { color: c.dim, formatter: (v) => v + '%' }, splitLine: { lineStyle: { color: c.rule } }, ...more,
})

/** The curves, the bars and the table of the list that is chosen. */
function oneList(all, policies) {
  let list = all[0]
  const from = 60
  const curves = plot({
    id: 'curves', title: 'GPUs allocated, by the demand that has arrived', height: 320,
    note: 'In per cent of the GPUs of the cluster, means over the seeds. Neither scale begins at 0.',
    option: (c) => ({
      grid: grid(),
      xAxis: percents(c, from, list.fillings[0].curve.length - 1, { splitLine: { show: false }, axisLine: { show: true, lineStyle: { color: c.rule } } }),
      yAxis: percents(c, foot(Math.min(...list.fillings.map((f) => f.curve[from]))), 100),
      tooltip: tooltip(c, { formatter: (at) => tip(`${at[0].value[0]} % have arrived`, at.map((p) => [p.color, p.seriesName, two(p.value[1]) + ' %'])) }),
      series: list.fillings.map((f, i) => line(c, i, f.policy, f.curve.slice(from).map((y, x) => [x + from, y]))),
    }),
  })
  const bars = plot({
    id: 'bars', title: 'GPUs allocated when 130 % have arrived', height: 320,
    note: 'Beside the published figure, or the goal where there is none. The scale does not begin at 0.',
    option: (c) => {
      const place = { type: 'bar', barGap: '8%', barCategoryGap: '28%', emphasis: { disabled: true } }
      return {
        grid: grid(),
        yAxis: { ...names(c, policies, 1e9), inverse: true, axisLabel: { color: c.text, interval: 0 } },
        xAxis: percents(c, foot(Math.min(...list.fillings.flatMap((f) => [ours(f), theirs(f) ?? 100]))), 100),
        tooltip: tooltip(c, {
          axisPointer: { type: 'shadow' },
          formatter: (at) => {
            const f = list.fillings[at[0].dataIndex]
            const told = f.published ? [[c.dim, 'published', two(f.published) + ' %']] : f.goal ? [[c.dim, 'goal', two(f.goal) + ' %']] : []
            return tip(f.policy, [[at[0].color, 'ours', two(ours(f)) + ' %'], ...told])
          },
        }),
        series: [
          { ...place, name: 'ours', data: list.fillings.map((f, i) => ({ value: ours(f), itemStyle: { color: colour(c, i) } })) },
          {
            ...place, name: 'published or goal',
            data: list.fillings.map((f) => ({
              value: theirs(f), itemStyle: f.published ? { color: c.dim, opacity: 0.55 } : { color: 'transparent', borderColor: c.text, borderType: 'dashed', borderWidth: 1.4 },
            })),
          },
        ],
      }
    },
  })
  const place = el('div', {})
  const show = (i) => {
    list = all[i]
    place.replaceChildren(figures(list))
    curves.redraw()
    bars.redraw()
  }
  place.replaceChildren(figures(list))
  return section('list', all.length > 1 ? 'How full the cluster gets, by list of pods' : `How full the cluster gets with the pods of ${list.name}`,
    choice('List of pods', all.map((l) => l.name), show),
    el('ul', { class: 'legend' }, [...legend(policies).children], key('published', 'published'), key('goal', 'goal')),
    el('div', { class: 'grid' }, curves, bars), place)
}

const key = (name, text) => el('li', {}, el('i', { class: 'mark ' + name }), text)

function figures(list) {
  const apart = (f) => Math.round(100 * (ours(f) - theirs(f))) / 100
  const told = (f) => (theirs(f) === null ? '' : (apart(f) > 0 ? '+' : '') + two(Math.abs(apart(f)) && apart(f)))
  return table(`The figures of ${list.name}`, ['policy', 'at 95 %', 'at 100 %', 'at 130 %', 'std', 'published', 'goal', 'difference', { text: 'passes', class: 'left' }, 'verdict'],
    list.fillings.map((f) => [f.policy, two(f.curve[95]), two(f.curve[100]), two(ours(f)), two(f.std), f.published ? two(f.published) : '', f.goal ? two(f.goal) : '',
      told(f), { text: f.how ?? '', class: 'left wrap' }, { text: f.verdict ?? '', class: f.verdict === 'fail' ? 'bad' : 'good' }]))
}

/** All lists at 130 % of arrivals: a dot for ours, a ring for the published, a line for the goal. */
function allLists(all, policies) {
  const least = Math.min(...all.flatMap((l) => l.fillings.flatMap((f) => [ours(f), theirs(f) ?? 100])))
  const dots = plot({
    id: 'lists', title: 'GPUs allocated when 130 % have arrived', height: 44 + 26 * all.length,
    note: 'A dot is ours, a ring around it the published figure, a line across the goal.',
    option: (c) => {
      const marks = (k, value, more) => ({
        type: 'scatter', emphasis: { disabled: true },
        data: all.flatMap((l, i) => (value(l.fillings[k]) ? [[value(l.fillings[k]), i]] : [])), ...more,
      })
      return {
        grid: grid(),
        xAxis: percents(c, foot(least), 100),
        yAxis: { ...names(c, all.map((l) => l.name), 1e9), inverse: true, splitLine: { show: true, lineStyle: { color: c.rule } }, axisLabel: { color: c.text, interval: 0 } },
        tooltip: tooltip(c, {
          axisPointer: { type: 'shadow', axis: 'y' },
          formatter: (at) => {
            const l = all[at[0].value[1]]
            return tip(l.name, l.fillings.map((f, i) => [colour(c, i), f.policy, two(ours(f)) + ' %' + (theirs(f) ? ` (${two(theirs(f))})` : '')]))
          },
        }),
        series: policies.flatMap((p, k) => [
          marks(k, (f) => f.published, { name: p, symbol: 'circle', symbolSize: 13, itemStyle: { color: 'transparent', borderColor: colour(c, k), borderWidth: 1.3, opacity: 1 } }),
          marks(k, (f) => f.goal, { name: p, symbol: 'rect', symbolSize: [2, 19], itemStyle: { color: colour(c, k), opacity: 1 } }),
          marks(k, ours, { name: p, symbol: 'circle', symbolSize: 7, itemStyle: { color: colour(c, k), opacity: 1 } }),
        ]),
      }
    },
  })
  const cell = (f) => ({ text: two(ours(f)) + (theirs(f) ? ` / ${two(theirs(f))}` : ''), class: f.verdict === 'fail' ? 'bad' : null })
  return section('all-lists', 'All lists', legend(policies), dots,
    asTable('Ours / published or goal', ['list', ...policies], all.map((l) => [l.name, ...l.fillings.map(cell)])))
}
