// What HP jobs held of each GPU model over time, against what they were expected to hold.

import { overTime } from './charts.js'
import { asTable, el, legend, section } from './dom.js'
import { duration, gpus, short } from './format.js'

const lines = [['held', 'held'], ['one', 'expected shortly before'], ['six', 'expected well before']]

/** A plot a model; null when nothing was forecast. */
export function forecast(page) {
  const all = page.runs.filter((r) => r.forecast?.length)
  if (all.length === 0) return null
  const name = (r, model) => (page.runs.length === 1 ? model : `${r.name}: ${model}`)
  const errors = all.flatMap((r) => (r.summary.hp_forecast ?? []).map((f) => ({ ...f, run: r })))
  const ahead = [...new Set(errors.map((f) => f.ahead_s))]
  const names = ['held', ...lines.slice(1).map(([, text], i) => (ahead[i] ? `expected ${duration(ahead[i])} before` : text))]
  const plots = all.flatMap((r, k) => r.forecast.map((f, i) => {
    const of = errors.filter((x) => x.run === r && x.model === f.model)
    const error = (e) => `${short(e.error_gpus)} ${duration(e.ahead_s)} before (${short(e.unchanged_error_gpus)})`
    return overTime({
      id: `forecast-${k}-${i}`, title: name(r, f.model), height: 180, group: 'forecast',
      note: of.length ? `mean ${short(of[0].mean_gpus)} GPUs · error ${of.slice(0, 2).map(error).join(', ')}` : null,
      series: lines.map(([key], c) => {
        const at = f.t.map((_, n) => n).filter((n) => f[key][n] !== null)
        return { name: names[c], colour: c, t: at.map((n) => f.t[n]), y: at.map((n) => f[key][n]) }
      }).filter((s) => s.t.length > 0),
      text: short, tipText: (v) => gpus(v) + ' GPUs', most: 2,
    })
  }))
  const rows = errors.map((f) => [name(f.run, f.model), duration(f.ahead_s), short(f.mean_gpus), short(f.error_gpus), short(f.unchanged_error_gpus)])
  return section('forecast', 'HP demand and its forecast',
    el('p', { class: 'dim' }, 'GPUs that HP jobs hold of each model, and what the engine had expected. The error is the mean difference; ' +
      'in brackets, that of a guess that nothing changes.'),
    legend(names),
    el('div', { class: 'grid' }, plots),
    asTable('Error of the forecast', ['model', 'ahead', 'HP GPUs, mean', 'error', 'if nothing changed'], rows))
}
